"""The agent's requests, against the simulated API server and, where it is at hand, a real one."""

import json
from pathlib import Path
from typing import Any

import pytest

from health.api_server import STRATEGIC_MERGE, ApiError, ApiServer, NoAccessError, address_in_pod
from sickbay.kube_objects import Node
from tests.kube_under_test import KubeUnderTest


@pytest.fixture
def account(tmp_path: Path, kube_server: KubeUnderTest) -> Path:
    """A service account's folder, as the kubelet mounts it."""
    if kube_server.token:
        (tmp_path / "token").write_text(f"{kube_server.token}\n")
    if kube_server.authority is not None:
        (tmp_path / "ca.crt").write_bytes(kube_server.authority.read_bytes())
    return tmp_path


async def test_a_patch_of_one_condition_keeps_the_others_and_names_its_writer(
    kube_server: KubeUnderTest, account: Path
) -> None:
    await kube_server.create_node("a")
    async with ApiServer(kube_server.url, "sickbay-node", account) as server:
        for kind in ("First", "Second"):
            body: dict[str, Any] = {"status": {"conditions": [{"type": kind, "status": "True"}]}}
            await server.patch("api/v1/nodes", "a", "status", body=body, kind=STRATEGIC_MERGE)
        text = await server.get("api/v1/nodes", "a")
    node = Node.model_validate_json(text)
    assert {"First", "Second"} <= {condition.type for condition in node.status.conditions}
    assert "sickbay-node" in {entry.manager for entry in node.metadata.managed_fields}


async def test_a_refusal_is_told_in_the_server_s_words_with_its_status(
    kube_server: KubeUnderTest, account: Path
) -> None:
    async with ApiServer(kube_server.url, "sickbay-node", account) as server:
        with pytest.raises(ApiError, match=r'404 nodes "absent" not found') as refused:
            await server.get("api/v1/nodes", "absent")
    assert refused.value.status == 404


async def test_an_object_is_made_by_a_post(kube_server: KubeUnderTest, account: Path) -> None:
    event: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "x.1", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": "a"},
        "reason": "Test",
        "message": "made by a test",
        "type": "Normal",
    }
    async with ApiServer(kube_server.url, "sickbay-node", account) as server:
        made = json.loads(await server.post("api/v1/namespaces/default/events", body=event))
    assert made["reason"] == "Test"


async def test_a_server_that_is_not_there_is_an_error_without_a_status(tmp_path: Path) -> None:
    async with ApiServer("http://127.0.0.1:9", "sickbay-node", tmp_path) as server:
        with pytest.raises(ApiError, match=r"no answer from http://127\.0\.0\.1:9") as silent:
            await server.get("api/v1/nodes", "a")
    assert silent.value.status is None


def test_the_address_in_a_pod_is_what_kubernetes_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    assert address_in_pod() == "https://[fd00::1]:6443"


def test_outside_of_a_pod_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(NoAccessError, match="SICKBAY_API_SERVER"):
        address_in_pod()


def test_a_certificate_authority_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("nothing of the kind")
    with pytest.raises(NoAccessError, match=r"ca\.crt: no certificate authority"):
        ApiServer("https://127.0.0.1:9", "sickbay-node", tmp_path)
