"""A real kube-apiserver with its etcd, from the folder that KUBEBUILDER_ASSETS names.

Started once a session by `tests.kube_servers`. It has no kubelet, no scheduler and no controllers, as the simulated
one. The two admission plugins that need those are off: ServiceAccount (no token controller makes accounts) and
TaintNodesByCondition (no node controller would take the taint off again).
"""

import json
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final, Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

ASSETS: Final = "KUBEBUILDER_ASSETS"
TOKEN: Final = "sickbay-tests"
"""Of a server that lives for one test session on the loopback interface."""
START_DEADLINE: Final = 90.0
"""Seconds until the server must be ready; a cold start on a busy machine takes up to 30."""
STOP_DEADLINE: Final = 15.0
POLL: Final = 0.2
HOST: Final = "127.0.0.1"


class RealKube:
    """One running API server; `with RealKube(assets, folder) as server: server.url`."""

    def __init__(self, assets: Path, folder: Path) -> None:
        """`assets` holds the programs `etcd` and `kube-apiserver`; `folder` takes data, keys and logs."""
        self._assets = assets
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._port = _free_port()
        self._tls = ssl.create_default_context()
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE

    @property
    def url(self) -> str:
        """Where it listens, with a certificate that it signed itself."""
        return f"https://{HOST}:{self._port}"

    @property
    def authority(self) -> Path:
        """The certificates that a client must trust, its own authority's among them."""
        return self._folder / "certificates" / "apiserver.crt"

    def __enter__(self) -> Self:
        try:
            self._start("kube-apiserver", *self._server_arguments(self._start_etcd()))
            self._wait_for("/readyz")
            for plural, kind in (("nodepools", "NodePool"), ("nodeclaims", "NodeClaim")):
                self._call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", _definition(plural, kind))
                self._wait_for(f"/apis/karpenter.sh/v1/{plural}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(STOP_DEADLINE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_DEADLINE)

    def _start_etcd(self) -> str:
        client, peer = (f"http://{HOST}:{_free_port()}" for _ in range(2))
        self._start(
            "etcd",
            f"--data-dir={self._folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        )
        return client

    def _server_arguments(self, etcd: str) -> list[str]:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        private, public = self._folder / "accounts.key", self._folder / "accounts.pub"
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        public.write_bytes(
            key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
        tokens = self._folder / "tokens.csv"
        tokens.write_text(f"{TOKEN},tests,tests,system:masters\n")
        return [
            f"--etcd-servers={etcd}",
            f"--bind-address={HOST}",
            f"--advertise-address={HOST}",
            f"--secure-port={self._port}",
            f"--cert-dir={self._folder / 'certificates'}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=AlwaysAllow",
            f"--service-account-issuer={self.url}",
            f"--service-account-key-file={public}",
            f"--service-account-signing-key-file={private}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--endpoint-reconciler-type=none",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        ]

    def _start(self, program: str, *arguments: str) -> None:
        with (self._folder / f"{program}.log").open("wb") as log:
            command = [str(self._assets / program), *arguments]
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))

    def _wait_for(self, path: str) -> None:
        end = time.monotonic() + START_DEADLINE
        while time.monotonic() < end:
            if any(process.poll() is not None for process in self._processes):
                break
            try:
                self._call("GET", path)
                return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(POLL)
        raise RuntimeError(f"the real kube-apiserver does not answer {path}: see the logs in {self._folder}")

    def _call(self, method: str, path: str, body: Any = None) -> None:
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=5, context=self._tls) as answer:
            answer.read()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _definition(plural: str, kind: str) -> dict[str, Any]:
    """A Karpenter kind with just enough schema: what matters here is that its conditions merge by type."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    conditions = {
        "type": "array",
        "items": {**anything, "required": ["type", "status"], "properties": {"type": {"type": "string"}}},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    }
    schema = {
        "type": "object",
        "properties": {"spec": anything, "status": {**anything, "properties": {"conditions": conditions}}},
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.karpenter.sh"},
        "spec": {
            "group": "karpenter.sh",
            "scope": "Cluster",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [version],
        },
    }
