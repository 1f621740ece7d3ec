"""All nodes of the cluster as they stand, kept so by list and watch.

Used by `workers.triage`, which learns what changed and decides what it means. The watch survives whatever the API
server does: a stream that ends is continued where it ended, an expired version (410) and every error lead to a new
list, with a growing wait between tries. A list after a gap may hide that a node was deleted and made anew under its
name: nodes are therefore kept by UID, and a name with another UID tells that the old node is gone.

The stream is read here and not by the client library's own watch: that one gives up on lines longer than its buffer,
which nodes with many images exceed, and re-lists without telling.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from enum import StrEnum
from typing import Final

import aiohttp
import structlog
from kubernetes.aio.client import ApiClient
from kubernetes.aio.config import ConfigException
from pydantic import Field, JsonValue, ValidationError

from activities import kube
from activities.errors import FinalError, PassingError
from sickbay.kube_objects import KubeObject, Node, ObjectMeta, Status
from workers import controller_metrics as metrics

NODES: Final = "/api/v1/nodes"
STREAM_TIME: Final = timedelta(minutes=5)
"""Length of one watch request, after which the server ends it and we go on where it ended."""
SILENCE: Final = timedelta(seconds=30)
"""How long past its end a stream may stay silent before its connection counts as dead."""
FIRST_WAIT: Final = timedelta(milliseconds=500)
LAST_WAIT: Final = timedelta(seconds=30)
BETWEEN_STREAMS: Final = timedelta(milliseconds=100)
"""So that a server that ends every stream at once is not asked in a circle."""

log: Final = structlog.get_logger(__name__)


class ExpiredError(Exception):
    """The server no longer has the version that we watch from (410): list anew."""


class StreamError(Exception):
    """The server refused or broke the watch."""


class ChangeKind(StrEnum):
    """What a watch event says; the server's words."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


class Change(KubeObject):
    """One event of the stream, its object not parsed yet."""

    type: ChangeKind
    object: dict[str, JsonValue]


class _ListMeta(KubeObject):
    resource_version: str = ""
    continue_token: str = Field(default="", alias="continue")


class _NodeList(KubeObject):
    metadata: _ListMeta = _ListMeta()
    items: tuple[dict[str, JsonValue], ...] = ()


class NodeWatch:
    """Every node of the cluster by UID, and who wants to know of changes.

    `changed` is called with the UID of each node that appeared, changed or went, and must not block.
    """

    def __init__(self, api: ApiClient, changed: Callable[[str], None], label_selector: str = "") -> None:
        self.nodes: dict[str, Node] = {}
        self.synced = asyncio.Event()
        """Set after the first whole list: before it, the absence of a node means nothing."""
        self._api = api
        self._changed = changed
        self._query = {"labelSelector": label_selector} if label_selector else {}
        self._uids: dict[str, str] = {}

    async def run(self) -> None:
        """List and watch until cancelled; no answer of the server ends it."""
        wait = FIRST_WAIT
        while True:
            try:
                version = await self._list()
                while True:
                    version = await self._stream(version)
                    wait = FIRST_WAIT
                    await asyncio.sleep(BETWEEN_STREAMS.total_seconds())
            except ExpiredError:
                metrics.WATCH_RELISTS.labels(reason="expired").inc()
                # A server that calls each version expired must not be asked for whole lists in a circle.
                await asyncio.sleep(wait.total_seconds())
                wait = min(wait * 2, LAST_WAIT)
            except (PassingError, FinalError, StreamError) as error:
                metrics.WATCH_RELISTS.labels(reason="error").inc()
                log.warning("the watch of nodes broke off; listing anew", error=str(error), wait_s=wait.total_seconds())
                await asyncio.sleep(wait.total_seconds())
                wait = min(wait * 2, LAST_WAIT)

    async def _list(self) -> str:
        """Read all nodes, tell what changed since the last look, and return the version to watch from."""
        seen: set[str] = set()
        token = ""
        while True:
            paging = {"limit": str(kube.PAGE_SIZE)} | ({"continue": token} if token else {})
            try:
                page = await kube.call(self._api, "GET", NODES, _NodeList, query={**self._query, **paging})
            except kube.KubePassingError as error:
                raise (ExpiredError() if error.refusal.code == 410 else error) from error
            seen.update(uid for uid in map(self._keep, page.items) if uid)
            token = page.metadata.continue_token
            if not token:
                break
        for uid in self.nodes.keys() - seen:
            self._drop(uid)
        self.synced.set()
        return page.metadata.resource_version

    async def _stream(self, version: str) -> str:
        """Follow changes from a version until the server ends the stream; the version reached."""
        async for line in self._lines(version):
            try:
                change = Change.model_validate_json(line)
                metadata = ObjectMeta.model_validate(change.object.get("metadata") or {})
            except ValidationError as error:
                raise StreamError(f"the watch told something unreadable: {error}") from error
            if change.type is ChangeKind.ERROR:
                status = Status.model_validate(change.object)
                if status.reason in ("Expired", "Gone") or change.object.get("code") == 410:
                    raise ExpiredError
                raise StreamError(status.message or status.reason)
            if change.type is ChangeKind.DELETED:
                self._drop(metadata.uid)
            elif change.type is not ChangeKind.BOOKMARK:
                self._keep(change.object)
            version = metadata.resource_version
        return version

    async def _lines(self, version: str) -> AsyncIterator[bytes]:
        query = {
            **self._query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(int(STREAM_TIME.total_seconds())),
        }
        timeout = aiohttp.ClientTimeout(total=(STREAM_TIME + SILENCE).total_seconds(), sock_connect=10)
        try:
            request = await self._api.param_serialize(
                "GET",
                NODES,
                header_params={"Accept": "application/json"},
                query_params=list(query.items()),
                auth_settings=["BearerToken"],
            )
            answer = await self._api.call_api(*request, _request_timeout=timeout)
            response: aiohttp.ClientResponse = answer.response
            async with response:
                if response.status != 200:
                    raise ExpiredError if response.status == 410 else StreamError(f"the watch got {response.status}")
                rest = b""
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        yield line
        except (TimeoutError, aiohttp.ClientError, OSError, ConfigException) as error:
            raise StreamError(f"no answer from the Kubernetes API: {error!r}") from error

    def _keep(self, raw: dict[str, JsonValue]) -> str:
        """Remember a node as it stands; its UID, or nothing if it cannot be read."""
        try:
            node = Node.model_validate(raw)
        except ValidationError as error:
            log.warning("a node object cannot be read, and is passed over", error=str(error))
            return ""
        uid, name = node.metadata.uid, node.metadata.name
        predecessor = self._uids.get(name)
        if predecessor not in (None, uid):
            self._drop(predecessor or "")
        known = self.nodes.get(uid)
        self.nodes[uid] = node
        self._uids[name] = uid
        if known is None or known.metadata.resource_version != node.metadata.resource_version:
            self._changed(uid)
        return uid

    def _drop(self, uid: str) -> None:
        node = self.nodes.pop(uid, None)
        if node is None:
            return
        if self._uids.get(node.metadata.name) == uid:
            del self._uids[node.metadata.name]
        self._changed(uid)
