"""The node agent's own way to the Kubernetes API: the few requests that it makes, and no more.

Used by the publisher. The agent runs on every GPU node beside the work, within 96 MB (`benchmarks/footprint.py`); the
Kubernetes client library takes 13 MB of them at its import and 100 more as soon as one of its typed APIs is made, so
that here aiohttp alone talks to the API server, as any pod may: by the address in its environment and the service
account that the kubelet mounts. Everything on the controller's side goes through `activities.kube`.
"""

import json
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

import aiohttp
from pydantic import JsonValue, ValidationError

from sickbay.kube_objects import Status

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet puts a pod's token and the cluster's certificate authority (Kubernetes, service accounts)."""
CALL_SECONDS: Final = 10.0
"""Whole time of one request."""
MERGE: Final = "application/merge-patch+json"
STRATEGIC_MERGE: Final = "application/strategic-merge-patch+json"
"""Two kinds of patch; the second joins a node's conditions by their types, so that those of others stay."""


class NoAccessError(Exception):
    """There is no way to the cluster as configured; the message names the place and the cure."""


class ApiError(Exception):
    """A request failed; the message is for people."""

    def __init__(self, message: str, status: int | None = None) -> None:
        """`status` is the HTTP status; None if there was no answer."""
        super().__init__(message)
        self.status = status


def address_in_pod() -> str:
    """The API server's address as Kubernetes tells every pod. Raises NoAccessError outside of one."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise NoAccessError("this is no pod of a cluster: set SICKBAY_API_SERVER to the address of the API server")
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"


class ApiServer:
    """Requests to one API server, as an async context manager."""

    def __init__(self, address: str, field_manager: str, service_account: Path = SERVICE_ACCOUNT) -> None:
        """`address` without a path, e.g. `https://10.0.0.1:443`; `service_account` may lack what the server does not
        ask for. Raises NoAccessError if its certificate authority cannot be used."""
        self._address = address.rstrip("/")
        self._field_manager = field_manager
        self._token_file = service_account / "token"
        self._ssl = _trust(service_account / "ca.crt") if address.startswith("https:") else None
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
        connector = aiohttp.TCPConnector(ssl=self._ssl or True, limit=2)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, *path: str) -> bytes:
        """An object's JSON, e.g. of `("api/v1/nodes", name)`. Raises ApiError."""
        return await self._send("GET", path, None, "application/json")

    async def patch(self, *path: str, body: Mapping[str, JsonValue], kind: str = MERGE) -> bytes:
        """Patch an object. Raises ApiError."""
        return await self._send("PATCH", path, body, kind)

    async def post(self, *path: str, body: Mapping[str, JsonValue]) -> bytes:
        """Make an object. Raises ApiError."""
        return await self._send("POST", path, body, "application/json")

    async def _send(self, method: str, path: tuple[str, ...], body: Mapping[str, JsonValue] | None, kind: str) -> bytes:
        assert self._session is not None, "used outside of its context"
        resource = "/".join((path[0], *(quote(part, safe="") for part in path[1:])))
        query = {} if body is None else {"fieldManager": self._field_manager}
        data = None if body is None else json.dumps(body)
        headers = {"Accept": "application/json", "Content-Type": kind, **self._authorization()}
        try:
            async with self._session.request(
                method, f"{self._address}/{resource}", params=query, data=data, headers=headers
            ) as answer:
                text = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(f"no answer from {self._address}: {str(error) or type(error).__name__}") from error
        if not answer.ok:
            raise ApiError(f"{answer.status} {_words(text) or answer.reason}", answer.status)
        return text

    def _authorization(self) -> dict[str, str]:
        """Read anew for each request: the kubelet replaces a token long before it expires."""
        try:
            return {"Authorization": f"Bearer {self._token_file.read_text(encoding='ascii').strip()}"}
        except (OSError, UnicodeDecodeError):
            return {}


def _trust(authority: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(authority) if authority.exists() else None)
    except (OSError, ssl.SSLError) as error:
        raise NoAccessError(f"{authority}: no certificate authority: {error}; mount the service account") from error


def _words(text: bytes) -> str:
    try:
        return Status.model_validate_json(text).message
    except ValidationError:
        return text[:200].decode(errors="replace").strip()
