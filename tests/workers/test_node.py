"""The node process as a whole: the real program on a simulated host, as the simulator and the DaemonSet run it."""

import asyncio
import json
import os
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest
from temporalio import workflow
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.host import HostActivities, ProbeRequest
from activities.host_jobs import AskCheckpoint, CheckpointAsked, HostJobActivities
from health.rank_reporter import Reporter
from sickbay.names import ANNOTATION_FAULTS, ANNOTATION_RANKS, CONDITION_GPU, CONDITIONS, node_queue
from sickbay.nodes import HostProbe
from sickbay.ranks.model import NodeRanks
from simulator.host.machine import HostMachine
from simulator.kube import KubeServer
from tests.eventually import eventually
from tests.kube_under_test import KubeUnderTest
from tests.simulator.hosts import reset_needed, running_host

NAME = "node-a"
NOWHERE = "127.0.0.1:9"
PROGRAM = (sys.executable, "-c", "from console.main import main; main()", "node")


@workflow.defn(sandboxed=False)  # this module imports what no workflow may
class Probe:
    """Asks one node's own worker, as the incident does."""

    @workflow.run
    async def run(self, node_name: str) -> HostProbe:
        return await workflow.execute_activity_method(
            HostActivities.probe_host,
            ProbeRequest(incident_id="incident-demo-a"),
            task_queue=node_queue(node_name),
            schedule_to_start_timeout=timedelta(seconds=30),
            start_to_close_timeout=timedelta(seconds=30),
            heartbeat_timeout=timedelta(seconds=10),
        )


@workflow.defn(sandboxed=False)
class Ask:
    """Asks a node's ranks for a checkpoint, as a training job does."""

    @workflow.run
    async def run(self, node_name: str) -> CheckpointAsked:
        return await workflow.execute_activity_method(
            HostJobActivities.ask_checkpoint,
            AskCheckpoint(job="ml/llama", attempt=1, request_id="incident-demo-a"),
            task_queue=node_queue(node_name),
            schedule_to_start_timeout=timedelta(seconds=30),
            start_to_close_timeout=timedelta(seconds=30),
        )


class Cluster:
    """A simulated API server that can be away."""

    def __init__(self, server: KubeUnderTest) -> None:
        self._server = server

    async def gpu_status(self) -> str:
        node = await self._server.request("GET", f"/api/v1/nodes/{NAME}")
        statuses = {entry["type"]: entry["status"] for entry in node["status"]["conditions"]}
        return str(statuses.get(CONDITION_GPU, "")) if set(CONDITIONS) <= set(statuses) else ""

    async def boot_id(self) -> str:
        node = await self._server.request("GET", f"/api/v1/nodes/{NAME}")
        return str(json.loads(node["metadata"].get("annotations", {}).get(ANNOTATION_FAULTS, "{}")).get("boot_id", ""))

    async def rank_url(self) -> str:
        node = await self._server.request("GET", f"/api/v1/nodes/{NAME}")
        return str(node["metadata"].get("annotations", {}).get(ANNOTATION_RANKS, ""))

    async def names_a_page(self) -> bool:
        return bool(await self.rank_url())

    async def is_of(self, boot_id: str) -> bool:
        return await self.boot_id() == boot_id

    async def shows(self, status: str) -> bool:
        return await self.gpu_status() == status


@asynccontextmanager
async def running_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    """One node's API server. No fixture, because tests on the shared Temporal server run in its event loop."""
    async with KubeServer() as server:
        under_test = KubeUnderTest(server.url, simulator=server)
        await under_test.create_node(NAME)
        monkeypatch.setenv("SICKBAY_API_SERVER", server.url)
        yield Cluster(under_test)
        await under_test.close()


@asynccontextmanager
async def node_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch, temporal: str = NOWHERE
) -> AsyncIterator[HostMachine]:
    """A booted machine that runs the program."""
    settings = {
        "TEMPORAL_ADDRESS": temporal,
        "SICKBAY_SERVE_HOST": "127.0.0.1",
        "SICKBAY_SERVE_PORT": "0",
        "SICKBAY_SERVICE_COMMAND": "false",
        "SICKBAY_KERNEL_LOG_SECONDS": "0.05",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    async with running_host(folder, agent=PROGRAM) as machine:
        yield machine


def told(machine: HostMachine) -> list[dict[str, str]]:
    """The program's log so far."""
    log = machine.folder / "agent.log"
    if not log.exists():
        return []
    return [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{") and line.endswith("}")]


def events(machine: HostMachine) -> list[str]:
    return [line["event"] for line in told(machine)]


async def get(machine: HostMachine, path: str) -> tuple[int, str]:
    """An answer of the program's own HTTP server."""
    (address,) = [line["http"] for line in told(machine) if line["event"] == "node agent started"]
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}{path}") as response:
        return response.status, await response.text()


@asynccontextmanager
async def prober(temporal: WorkflowEnvironment) -> AsyncIterator[str]:
    """A worker for the workflow of this test; gives its task queue."""
    queue = f"probe-{uuid.uuid4()}"
    async with Worker(temporal.client, task_queue=queue, workflows=[Probe, Ask]):
        yield queue


async def probe(temporal: WorkflowEnvironment, queue: str) -> HostProbe:
    return await temporal.client.execute_workflow(Probe.run, NAME, id=f"{queue}-{uuid.uuid4()}", task_queue=queue)


@pytest.mark.asyncio(loop_scope="session")
async def test_the_process_publishes_serves_and_ends_when_told(
    dev_server: WorkflowEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = dev_server.client.service_client.config.target_host
    async with (
        running_cluster(tmp_path, monkeypatch) as cluster,
        node_process(tmp_path, monkeypatch, address) as machine,
        prober(dev_server) as queue,
    ):
        await eventually(lambda: cluster.shows("True"))
        await eventually(lambda: cluster.is_of(machine.boot_id))
        machine.inject(reset_needed(3))
        seen = await probe(dev_server, queue)
        assert seen.boot_id == machine.boot_id
        assert "xid-95" in {fault.code for fault in seen.faults}
        await eventually(lambda: cluster.shows("False"))
        await eventually(lambda: answers(machine, "/readyz", 200))
        assert 'sickbay_node_open_faults{class="gpu",fault="xid-95"} 1.0' in (await get(machine, "/metrics"))[1]
        assert machine.agent is not None
        await machine.agent.stop(grace=20)
        assert events(machine)[-1] == "node agent ended"


async def says(machine: HostMachine, path: str, text: str) -> bool:
    return (await get(machine, path))[1] == text


async def answers(machine: HostMachine, path: str, status: int) -> bool:
    return "node agent started" in events(machine) and (await get(machine, path))[0] == status


async def test_faults_are_published_while_temporal_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_cluster(tmp_path, monkeypatch) as cluster, node_process(tmp_path, monkeypatch) as machine:
        await eventually(lambda: cluster.shows("True"))
        machine.inject(reset_needed(3))
        await eventually(lambda: cluster.shows("False"))
        await eventually(lambda: says(machine, "/readyz", "temporal: starting\n"))
        assert (await get(machine, "/healthz"))[0] == 200


async def test_what_a_rank_reports_is_on_the_page_that_the_node_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_cluster(tmp_path, monkeypatch) as cluster, node_process(tmp_path, monkeypatch) as machine:
        await eventually(lambda: cluster.shows("True"))
        await eventually(cluster.names_a_page)
        folder = machine.folder / "host" / "run" / "sickbay" / "ranks"
        await eventually(folder.is_dir)
        reporter = Reporter(str(folder / "ml_llama" / "1"), "ml/llama", 1, {"rank": 5})
        reporter.step(17, compute_ms=40)
        url = await cluster.rank_url()

        async def told() -> bool:
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                page = NodeRanks.model_validate_json(await answer.read())
            assert (page.node, page.boot_id) == (NAME, machine.boot_id)
            return [(window.place.rank, window.last_step) for window in page.windows] == [(5, 17)]

        await eventually(told)


@pytest.mark.asyncio(loop_scope="session")
async def test_repairs_are_served_while_the_api_server_is_away(
    dev_server: WorkflowEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SICKBAY_API_SERVER", f"http://{NOWHERE}")
    address = dev_server.client.service_client.config.target_host
    async with node_process(tmp_path, monkeypatch, address) as machine, prober(dev_server) as queue:
        assert (await probe(dev_server, queue)).gpus_answered
        asked = await dev_server.client.execute_workflow(Ask.run, NAME, id=f"{queue}-ask", task_queue=queue)
        assert "no rank of this attempt" in asked.why
        await eventually(lambda: answers(machine, "/readyz", 503))
        assert "kubernetes: " in (await get(machine, "/readyz"))[1]


async def run_once(**environment: str) -> tuple[int, str]:
    """The program with wrong settings, to its end."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        env={"PATH": os.environ["PATH"], **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


async def test_wrong_settings_are_one_line_that_names_the_variable() -> None:
    code, output = await run_once(SICKBAY_EXPECTED_GPUS="eight")
    assert code == 2
    (line,) = output.splitlines()
    assert "SICKBAY_NODE_NAME: field required" in line
    assert "SICKBAY_EXPECTED_GPUS: input should be a valid integer" in line


async def test_a_boot_id_that_cannot_be_read_is_one_line_with_its_cure(tmp_path: Path) -> None:
    code, output = await run_once(SICKBAY_NODE_NAME=NAME, SICKBAY_BOOT_ID_PATH=str(tmp_path / "none"))
    assert code == 2
    assert output == (
        f"sickbay: SICKBAY_BOOT_ID_PATH: cannot read the boot id from {tmp_path / 'none'}: No such file or directory; "
        "name the file that holds it\n"
    )


async def test_without_a_way_to_the_cluster_the_line_names_the_place(tmp_path: Path) -> None:
    code, output = await run_once(SICKBAY_NODE_NAME=NAME, SICKBAY_STATE_DIR=str(tmp_path))
    assert code == 2
    assert output == ("sickbay: this is no pod of a cluster: set SICKBAY_API_SERVER to the address of the API server\n")
