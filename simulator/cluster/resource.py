"""One kind of object: a cache kept by list and watch, and the writes, whose replies go into the cache at once.

Because a behaviour sees its own writes before it looks again, its next turn cannot repeat them (a job would else make
a second pod while the watch event of the first is still under way).
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import Generic, TypeVar

import aiohttp

from simulator.cluster.api import Json, KubeApi, KubeError, PatchKind
from simulator.cluster.objects import KubeObject

log = logging.getLogger(__name__)

Kind = TypeVar("Kind", bound=KubeObject)

RETRY_SECONDS = 0.2
"""Real seconds between tries to list while the server is not there."""

PASSING_ERRORS = (KubeError, aiohttp.ClientError, TimeoutError)
"""What a request may end with while the server restarts or an object changes under our hands."""


class Resource(Generic[Kind]):
    """All objects of one kind, in all namespaces."""

    def __init__(self, api: KubeApi, model: type[Kind], prefix: str, plural: str, namespaced: bool) -> None:
        self._api = api
        self._model = model
        self._prefix = prefix
        self._plural = plural
        self._namespaced = namespaced
        self._items: dict[tuple[str, str], Kind] = {}
        self._removed_at: dict[tuple[str, str], int] = {}
        self._listeners: list[asyncio.Event] = []
        self.synced = asyncio.Event()

    def __iter__(self) -> Iterator[Kind]:
        return iter(list(self._items.values()))

    def get(self, name: str, namespace: str = "") -> Kind | None:
        """The cached object of this name."""
        return self._items.get((namespace, name))

    def notify(self, listener: asyncio.Event) -> None:
        """Set this event at every change from now on."""
        self._listeners.append(listener)

    async def follow(self) -> None:
        """Keep the cache, for ever."""
        while True:
            try:
                version = await self._relist()
                while True:
                    version = await self._watch_once(version)
            except PASSING_ERRORS as error:
                log.debug("%s are listed anew: %s", self._plural, error)
                await asyncio.sleep(RETRY_SECONDS)

    async def create(self, body: Json, namespace: str = "") -> Kind:
        """Make an object. Raises KubeError."""
        return self._keep(await self._api.create(self._collection(namespace), body))

    async def patch(
        self, target: Kind, body: Json, *, kind: PatchKind = PatchKind.MERGE, subresource: str = ""
    ) -> Kind:
        """Change an object. Raises KubeError."""
        return self._keep(await self._api.patch(self._path(target, subresource), body, kind))

    async def delete(self, target: Kind, grace_seconds: int | None = None) -> None:
        """Delete an object; nothing happens if it is gone or is another one by now. Raises KubeError."""
        try:
            await self._api.delete(self._path(target), target.metadata.uid, grace_seconds)
        except KubeError as error:
            if error.status not in (404, 409):
                raise

    async def act(self, target: Kind, subresource: str, body: Json) -> None:
        """Post to a subresource, a pod's binding or eviction, then look at the object again. Raises KubeError."""
        await self._api.create(self._path(target, subresource), body)
        try:
            self._keep(await self._api.get(self._path(target)))
        except KubeError as error:
            if error.status != 404:
                raise

    async def _relist(self) -> str:
        listed = await self._api.get(f"{self._prefix}/{self._plural}")
        items = [self._model.model_validate(item) for item in listed["items"]]
        self._items = {_key(item): item for item in items}
        self._removed_at.clear()
        self.synced.set()
        self._changed()
        return str(listed["metadata"]["resourceVersion"])

    async def _watch_once(self, version: str) -> str:
        async for event in self._api.watch(f"{self._prefix}/{self._plural}", version):
            if event["type"] == "ERROR":
                status = event["object"]
                raise KubeError(int(status.get("code", 500)), str(status.get("reason", "")), str(status.get("message")))
            version = str(event["object"]["metadata"]["resourceVersion"])
            if event["type"] == "DELETED":
                self._drop(self._model.model_validate(event["object"]))
            elif event["type"] != "BOOKMARK":
                self._keep(event["object"])
        return version

    def _keep(self, raw: Json) -> Kind:
        item = self._model.model_validate(raw)
        known = self._items.get(_key(item))
        oldest_news = max(self._removed_at.get(_key(item), 0), _version(known) if known else 0)
        if _version(item) > oldest_news:
            self._items[_key(item)] = item
            self._changed()
        return item

    def _drop(self, item: Kind) -> None:
        self._removed_at[_key(item)] = _version(item)
        known = self._items.get(_key(item))
        if known is not None and _version(known) <= _version(item):
            del self._items[_key(item)]
        self._changed()

    def _changed(self) -> None:
        for listener in self._listeners:
            listener.set()

    def _collection(self, namespace: str) -> str:
        place = f"/namespaces/{namespace}" if self._namespaced else ""
        return f"{self._prefix}{place}/{self._plural}"

    def _path(self, target: Kind, subresource: str = "") -> str:
        path = f"{self._collection(target.metadata.namespace)}/{target.name}"
        return f"{path}/{subresource}" if subresource else path


def _key(item: KubeObject) -> tuple[str, str]:
    return item.metadata.namespace, item.name


def _version(item: KubeObject) -> int:
    return int(item.metadata.resource_version)
