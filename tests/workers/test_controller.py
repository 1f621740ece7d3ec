"""The controller as it is run: its own process, told by its environment, against real wire protocols."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import aiohttp
import pytest
import yaml
from temporalio.client import WorkflowExecutionStatus
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment

from activities.ec2 import InstanceRef
from sickbay import names
from sickbay.policy.file import default_policy
from tests.eventually import eventually
from tests.kube_under_test import KubeUnderTest
from workers.controller import WORKFLOWS, cluster_activities
from workers.settings import ControllerSettings

POLICY = default_policy()
PROGRAM = Path(sys.executable).parent / "sickbay"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def kubeconfig(server: KubeUnderTest, folder: Path) -> Path:
    """A kubeconfig file for the server under test."""
    user = {"token": server.token} if server.token else {}
    file = folder / "kubeconfig"
    file.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "test",
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
                "clusters": [{"name": "test", "cluster": {"server": server.url, "insecure-skip-tls-verify": True}}],
                "users": [{"name": "test", "user": user}],
            }
        )
    )
    return file


@asynccontextmanager
async def controller(**environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The process, killed at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        PROGRAM, "controller", env={**os.environ, **environment}, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_the_process_contains_opens_serves_and_ends_when_told_to(
    kube_server: KubeUnderTest, dev_server: WorkflowEnvironment, tmp_path: Path
) -> None:
    client, cluster, port = dev_server.client, f"lab-{uuid4().hex[:8]}", free_port()
    environment = {
        "SICKBAY_CLUSTER": cluster,
        "SICKBAY_KUBECONFIG": str(kubeconfig(kube_server, tmp_path)),
        "SICKBAY_LEASE_NAMESPACE": "default",
        "SICKBAY_SERVE_HOST": "127.0.0.1",
        "SICKBAY_SERVE_PORT": str(port),
        "SICKBAY_SETTLE_SECONDS": "0",
        "SICKBAY_SHUTDOWN_SECONDS": "1",
        "TEMPORAL_ADDRESS": client.service_client.config.target_host,
    }
    incident = client.get_workflow_handle(names.incident_id(cluster, "i-n1"))

    async def is_open() -> bool:
        try:
            return (await incident.describe()).status is WorkflowExecutionStatus.RUNNING
        except RPCError:
            return False

    async def is_ready() -> bool:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/readyz") as answer:
            return bool(answer.status == 200)

    async def is_contained() -> bool:
        node = await kube_server.request("GET", "/api/v1/nodes/n1")
        return bool(node["metadata"].get("annotations", {}).get(names.ANNOTATION_INCIDENT) == incident.id)

    await kube_server.create_node("n1", provider_id="aws:///eu-west-1a/i-n1", ready="Unknown")
    async with controller(**environment) as process:
        await eventually(is_contained)
        await eventually(is_open)
        assert await is_ready()
        budget = await client.get_workflow_handle(names.budget_id(cluster)).describe()
        assert budget.status is WorkflowExecutionStatus.RUNNING
        lease = await kube_server.request(
            "GET", "/apis/coordination.k8s.io/v1/namespaces/default/leases/sickbay-controller"
        )
        assert lease["spec"]["holderIdentity"]
        process.send_signal(signal.SIGTERM)
        _, log = await asyncio.wait_for(process.communicate(), 15)
        assert process.returncode == 0, log.decode()
    lease = await kube_server.request(
        "GET", "/apis/coordination.k8s.io/v1/namespaces/default/leases/sickbay-controller"
    )
    assert not lease["spec"].get("holderIdentity")
    for handle in (incident, client.get_workflow_handle(names.budget_id(cluster))):
        await handle.terminate()


async def test_a_mistake_in_the_environment_is_one_clear_line(tmp_path: Path) -> None:
    async with controller(SICKBAY_CLUSTER="a b") as process:
        _, told = await process.communicate()
    assert process.returncode == 2
    assert told.decode().startswith("sickbay: environment: SICKBAY_CLUSTER: string should match pattern '^[A-Z")
    assert told.count(b"\n") == 1


async def test_a_policy_file_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    async with controller(SICKBAY_CLUSTER="lab", SICKBAY_POLICY_FILE=str(tmp_path / "none.yaml")) as process:
        _, told = await process.communicate()
    assert process.returncode == 2
    assert b"SICKBAY_POLICY_FILE: cannot read" in told
    assert told.count(b"\n") == 1


async def test_a_cluster_without_aws_hears_of_the_missing_region_only_from_the_call_that_needs_it(
    kube_server: KubeUnderTest, dev_server: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    served = cluster_activities(dev_server.client, kube_server.api_client(), ControllerSettings(cluster="lab"), POLICY)
    observe = next(activity for activity in served if activity.__name__ == "observe_instance")
    with pytest.raises(ApplicationError, match="region") as raised:
        observe(InstanceRef(instance_id="i-0abc"))
    assert raised.value.non_retryable


def test_the_region_is_read_where_eks_puts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert ControllerSettings(cluster="lab").aws_region == "eu-west-1"


async def test_every_activity_that_an_incident_calls_on_the_cluster_is_served(
    kube_server: KubeUnderTest, dev_server: WorkflowEnvironment
) -> None:
    served = cluster_activities(dev_server.client, kube_server.api_client(), ControllerSettings(cluster="lab"), POLICY)
    assert len({activity.__name__ for activity in served}) == len(served)
    assert {workflow.__name__ for workflow in WORKFLOWS} >= {"NodeIncident", "NodeAdmission", "DisruptionBudget"}
