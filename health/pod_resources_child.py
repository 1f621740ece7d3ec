"""The program that asks the kubelet which devices it has given to pods, in a process of its own.

Started by `health.pod_resources`, by its path, with the kubelet's socket. It is a process of its own so that gRPC is in
memory only while it asks, and because the kubelet may never answer. The messages that it needs are described here as
the kubelet's API has them (k8s.io/kubelet, podresources v1); of their fields only those that name devices.
"""

import json
import sys
from typing import Any, Final

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

METHOD: Final = "/v1.PodResourcesLister/List"
CALL_SECONDS: Final = 5.0
MAX_ANSWER_BYTES: Final = 16 << 20
"""What the kubelet itself allows; gRPC's own default is a quarter of it."""
_PACKAGE: Final = "v1"

_TEXT: Final = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
_MESSAGE: Final = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE

MESSAGES: Final[dict[str, dict[str, tuple[int, str, bool]]]] = {
    "ListPodResourcesRequest": {},
    "ListPodResourcesResponse": {"pod_resources": (1, "PodResources", True)},
    "PodResources": {
        "name": (1, "", False),
        "namespace": (2, "", False),
        "containers": (3, "ContainerResources", True),
    },
    "ContainerResources": {
        "devices": (2, "ContainerDevices", True),
        "dynamic_resources": (5, "DynamicResource", True),
    },
    "ContainerDevices": {"resource_name": (1, "", False), "device_ids": (2, "", True)},
    "DynamicResource": {"claim_resources": (4, "ClaimResource", True)},
    "ClaimResource": {"driver_name": (2, "", False), "device_name": (4, "", False)},
}
"""Field number, type (empty for text) and whether it repeats, by message and field. Other fields are read over."""


def message(name: str) -> Any:
    """The class of a message of the kubelet's API."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


def _described() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(name="podresources.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in MESSAGES.items():
        made = file.message_type.add(name=name)
        for field, (number, kind, repeats) in fields.items():
            described = made.field.add(name=field, number=number, type=_MESSAGE if kind else _TEXT)
            described.label = described.LABEL_REPEATED if repeats else described.LABEL_OPTIONAL
            if kind:
                described.type_name = f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


_POOL: Final = _described()


def ask(socket: str) -> list[dict[str, str]]:
    """Every device that a pod has. Raises grpc.RpcError if the kubelet does not answer."""
    options = [("grpc.max_receive_message_length", MAX_ANSWER_BYTES)]
    with grpc.insecure_channel(f"unix://{socket}", options=options) as channel:
        call = channel.unary_unary(
            METHOD,
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=message("ListPodResourcesResponse").FromString,
        )
        answer = call(message("ListPodResourcesRequest")(), timeout=CALL_SECONDS)
    containers = [container for pod in answer.pod_resources for container in pod.containers]
    plain = [
        {"resource": devices.resource_name, "id": device}
        for container in containers
        for devices in container.devices
        for device in devices.device_ids
    ]
    claimed = [
        {"resource": claim.driver_name, "id": claim.device_name}
        for container in containers
        for resource in container.dynamic_resources
        for claim in resource.claim_resources
    ]
    return plain + claimed


def main() -> None:
    """Ask once; one JSON object is the whole answer."""
    try:
        said: dict[str, Any] = {"devices": ask(sys.argv[1])}
    except grpc.RpcError as error:
        said = {"failed": str(error.code() if isinstance(error, grpc.Call) else error)}
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
