"""A small JSON client of a Kubernetes API server: the cluster behaviours' only way to it.

Plain HTTP without authentication, for the simulated server or for a real one behind `kubectl proxy`. It repeats
nothing: the behaviours are control loops, whose next turn is the retry.
"""

import json
from collections.abc import AsyncIterator, Mapping
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

import aiohttp

Json = Mapping[str, Any]

TIMEOUT = aiohttp.ClientTimeout(total=10)
WATCH_SECONDS = 240
WATCH_TIMEOUT = aiohttp.ClientTimeout(total=WATCH_SECONDS + 30, sock_connect=10)
LARGEST_OBJECT = 1 << 22
"""Bytes of one watch line; an object may be up to 1.5 MiB."""


class PatchKind(StrEnum):
    """How a patch is to be read."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"


class KubeError(Exception):
    """The API server refused a request."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason


class KubeApi:
    """One session with one API server."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=TIMEOUT, read_bufsize=LARGEST_OBJECT)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def get(self, path: str) -> Json:
        """An object or a list. Raises KubeError, or aiohttp's errors where the server is not there."""
        return await self._request("GET", path)

    async def create(self, path: str, body: Json) -> Json:
        """Post an object, or a subresource such as a binding."""
        return await self._request("POST", path, body)

    async def patch(self, path: str, body: Json, kind: PatchKind) -> Json:
        """Change an object."""
        return await self._request("PATCH", path, body, kind)

    async def delete(self, path: str, uid: str, grace_seconds: int | None = None) -> None:
        """Delete the object of this very UID; `grace_seconds` 0 removes a pod at once."""
        options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        await self._request("DELETE", path, options)

    async def watch(self, path: str, resource_version: str) -> AsyncIterator[Json]:
        """Events since a version, until the server ends the watch."""
        query = f"?watch=true&resourceVersion={resource_version}&timeoutSeconds={WATCH_SECONDS}"
        async with self._session.get(self._url + path + query, timeout=WATCH_TIMEOUT) as reply:
            if reply.status != 200:
                raise await _refusal(reply)
            async for line in reply.content:
                yield json.loads(line)

    async def _request(self, method: str, path: str, body: Json | None = None, kind: str = "application/json") -> Json:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": kind, "Accept": "application/json", "User-Agent": "simulated-cluster"}
        async with self._session.request(method, self._url + path, data=data, headers=headers) as reply:
            if reply.status >= 400:
                raise await _refusal(reply)
            made: Json = await reply.json(content_type=None)
            return made


async def _refusal(reply: aiohttp.ClientResponse) -> KubeError:
    text = await reply.text()
    try:
        status = json.loads(text)
    except ValueError:
        return KubeError(reply.status, "", text[:200])
    return KubeError(reply.status, str(status.get("reason", "")), str(status.get("message", "")))
