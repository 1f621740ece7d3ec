"""A kubelet that answers PodResources: a real gRPC server on a Unix socket."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from health.pod_resources_child import METHOD, message


@contextmanager
def kubelet(folder: Path, answer: bytes, code: grpc.StatusCode | None = None) -> Iterator[Path]:
    """A kubelet that answers List with this."""

    def say(request: bytes, context: Any) -> bytes:
        if code is not None:
            context.abort(code, "no")
        return answer

    place = folder / "kubelet.sock"
    service, method = METHOD.strip("/").split("/")
    handler = grpc.method_handlers_generic_handler(service, {method: grpc.unary_unary_rpc_method_handler(say)})
    server = grpc.server(ThreadPoolExecutor(1), handlers=[handler])
    server.add_insecure_port(f"unix://{place}")
    server.start()
    try:
        yield place
    finally:
        server.stop(None).wait()


def pods(*containers: dict[str, Any]) -> bytes:
    pod = {"containers": list(containers)}
    answer = message("ListPodResourcesResponse")(pod_resources=[pod])
    return bytes(answer.SerializeToString())
