"""Calls to the Kubernetes API: a client for a cluster, one function that sends, and what the answers mean.

Used by every activity that touches the cluster, and by the controller. It exists because the generated client has no
types for Karpenter's resources, parses whole objects of which we read a few fields, and does not tell errors that pass
from errors that stay. Every call has a timeout and, where it writes, carries our field manager. It decides nothing.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal, TypeVar
from urllib.parse import quote

import aiohttp
from kubernetes.aio.client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config
from pydantic import Field, JsonValue, ValidationError

from activities.errors import FinalError, PassingError
from sickbay.kube_objects import KubeObject, Status
from sickbay.names import FIELD_MANAGER

CALL_TIMEOUT: Final = timedelta(seconds=15)
"""Whole time of one call; below any heartbeat timeout, so that a dead API server is not taken for a dead worker."""
PAGE_SIZE: Final = 500
"""Objects per page of a list, as kubectl asks for."""
LIST_ATTEMPTS: Final = 3
"""Lists begun before giving up on one whose continuation expires each time."""
PASSING_CODES: Final = frozenset({408, 409, 410, 429, 500, 502, 503, 504})
"""HTTP codes after which the same call may succeed later; every other refusal is final."""

Method = Literal["GET", "POST", "PATCH", "DELETE"]
Body = Mapping[str, JsonValue]
Answer = TypeVar("Answer", bound=KubeObject)


class ClusterAccessError(Exception):
    """There is no way to the cluster as configured; the message names the place and the cure."""


@dataclass(frozen=True)
class Refusal:
    """What the API server said instead of doing it."""

    code: int
    status: Status
    retry_after: timedelta | None


class KubeFinalError(FinalError):
    """400, 401, 403, 405, 422 and their like."""

    def __init__(self, message: str, refusal: Refusal) -> None:
        super().__init__(message)
        self.refusal = refusal


class KubePassingError(PassingError):
    """409, 429, 5xx and their like."""

    def __init__(self, message: str, refusal: Refusal) -> None:
        super().__init__(message, retry_after=refusal.retry_after)
        self.refusal = refusal


class NotFoundError(KubeFinalError):
    """There is no such object. Callers for whom that is an answer catch it."""


class ConflictError(KubePassingError):
    """Somebody else wrote first, replaced the object, or made it already: read again."""


async def connect(kubeconfig: Path | None = None, context: str | None = None) -> ApiClient:
    """A client for the cluster of a kubeconfig file, else of the pod we run in, else of the user's own kubeconfig.

    The caller closes it. Raises ClusterAccessError.
    """
    configuration = Configuration()
    in_cluster = kubeconfig is None and bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
    place = "the pod's service account" if in_cluster else f"kubeconfig {kubeconfig or '~/.kube/config'}"
    try:
        if in_cluster:
            load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            await load_kube_config(  # type: ignore[no-untyped-call]
                config_file=str(kubeconfig) if kubeconfig else None,
                context=context,
                client_configuration=configuration,
                persist_config=False,
            )
    except Exception as error:
        reason = " ".join(str(error).split())
        cure = "name a readable kubeconfig file and a context that is in it, or run inside the cluster"
        raise ClusterAccessError(f"no way to the cluster through {place}: {reason}; {cure}") from error
    client = ApiClient(configuration)
    client.user_agent = FIELD_MANAGER
    return client


def path(prefix: str, *segments: str) -> str:
    """An API path, e.g. `path("/api/v1/nodes", name)`, whatever characters the segments have."""
    return "/".join((prefix, *(quote(segment, safe="") for segment in segments)))


async def call(
    api: ApiClient,
    method: Method,
    resource: str,
    answer: type[Answer],
    *,
    query: Mapping[str, str] | None = None,
    body: Body | None = None,
) -> Answer:
    """Send one request and parse its answer. A PATCH is a JSON merge patch, which custom resources take too.

    Raises NotFoundError, ConflictError, KubeFinalError, or PassingError for every other failure, silence included.
    """
    try:
        code, headers, text = await _send(api, method, resource, query or {}, body)
    except (TimeoutError, aiohttp.ClientError, OSError, ConfigException) as error:
        raise PassingError(f"{method} {resource}: no answer from the Kubernetes API: {error!r}") from error
    if not 200 <= code < 300:
        raise _refusal_error(f"{method} {resource}", code, headers, text)
    try:
        return answer.model_validate_json(text)
    except ValidationError as error:
        raise PassingError(f"{method} {resource}: the answer is no {answer.__name__}: {error}") from error


async def read_text(api: ApiClient, resource: str, *, query: Mapping[str, str] | None = None, most: int) -> bytes:
    """What a subresource answers that is no JSON, such as a pod's log: its end, at most so many bytes.

    However much the server sends, no more is held. Raises as `call` does.
    """
    try:
        code, headers, text = await _send(api, "GET", resource, query or {}, None, most)
    except (TimeoutError, aiohttp.ClientError, OSError, ConfigException) as error:
        raise PassingError(f"GET {resource}: no answer from the Kubernetes API: {error!r}") from error
    if not 200 <= code < 300:
        raise _refusal_error(f"GET {resource}", code, headers, text)
    return text


async def _send(
    api: ApiClient, method: Method, resource: str, query: Mapping[str, str], body: Body | None, most: int | None = None
) -> tuple[int, Mapping[str, str], bytes]:
    headers = {"Accept": "application/json"}
    headers["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
    writes_fields = method in ("POST", "PATCH")
    url_query = {**query, "fieldManager": FIELD_MANAGER} if writes_fields else dict(query)
    request = await api.param_serialize(
        method,
        resource,
        header_params=headers,
        query_params=list(url_query.items()),
        body=dict(body) if body is not None else None,
        auth_settings=["BearerToken"],
    )
    response = await api.call_api(*request, _request_timeout=aiohttp.ClientTimeout(total=CALL_TIMEOUT.total_seconds()))
    if most is not None:
        return response.status, response.headers, await _end_of(response.response, most)
    text = await response.read()  # type: ignore[no-untyped-call]
    return response.status, response.headers, text


async def _end_of(answer: aiohttp.ClientResponse, most: int) -> bytes:
    """The last bytes of an answer, with no more than those held."""
    kept = bytearray()
    async for piece in answer.content.iter_chunked(1 << 16):
        kept += piece
        del kept[: max(len(kept) - most, 0)]
    return bytes(kept)


def _refusal_error(what: str, code: int, headers: Mapping[str, str], text: bytes) -> FinalError | PassingError:
    try:
        status = Status.model_validate_json(text)
    except ValidationError:
        status = Status(message=text[:200].decode(errors="replace").strip())
    refusal = Refusal(code=code, status=status, retry_after=_retry_after(headers, status))
    message = f"{what}: {code} {status.message or status.reason}"
    if code == 404 and status.misses_object:
        return NotFoundError(message, refusal)
    if code == 409:
        return ConflictError(message, refusal)
    if code in PASSING_CODES:
        return KubePassingError(message, refusal)
    return KubeFinalError(message, refusal)


def _retry_after(headers: Mapping[str, str], status: Status) -> timedelta | None:
    header = headers.get("Retry-After", "")
    seconds = int(header) if header.isdecimal() else status.details.retry_after_seconds
    return timedelta(seconds=seconds) if seconds > 0 else None


class _ListMeta(KubeObject):
    continue_token: str = Field(default="", alias="continue")


class _Page(KubeObject):
    metadata: _ListMeta = _ListMeta()
    items: tuple[dict[str, JsonValue], ...] = ()


async def list_all(
    api: ApiClient, resource: str, item: type[Answer], *, query: Mapping[str, str] | None = None
) -> tuple[Answer, ...]:
    """Every object of a list, page by page; begun again if its continuation expires (410). Raises as `call` does."""
    for _ in range(LIST_ATTEMPTS - 1):
        try:
            return await _list_once(api, resource, item, query or {})
        except KubePassingError as error:
            if error.refusal.code != 410:
                raise
    return await _list_once(api, resource, item, query or {})


async def _list_once(api: ApiClient, resource: str, item: type[Answer], query: Mapping[str, str]) -> tuple[Answer, ...]:
    found: list[Answer] = []
    token = ""
    while True:
        paging = {"limit": str(PAGE_SIZE)} | ({"continue": token} if token else {})
        page = await call(api, "GET", resource, _Page, query={**query, **paging})
        found.extend(item.model_validate(each) for each in page.items)
        token = page.metadata.continue_token
        if not token:
            return tuple(found)
