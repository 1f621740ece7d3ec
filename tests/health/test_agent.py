"""The agent as a whole: a kernel log that the test writes, and an NVML that answers as the test says."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from health.agent import NodeAgent
from health.check import Check
from health.inventory import Machine
from health.kernel_watch import SILENT_LOG_SECONDS
from health.nvml_check import AskNvml, NvmlCheck
from health.settings import NodeSettings
from sickbay.checks import HostFacts
from sickbay.gpu_readings import GpuAnswer, NvmlAnswer
from tests.eventually import eventually

from .records import ACTION_RESET, XID_31, XID_119, KernelLogFile

PCIS = ("0000:53:00", "0000:61:00")


class Nvml:
    """An NVML of two GPUs."""

    def __init__(self) -> None:
        self.answer = self.healthy()
        self.asked = 0

    def __call__(self, deadline: timedelta, library: str) -> NvmlAnswer:
        self.asked += 1
        return self.answer

    @staticmethod
    def healthy(**second: Any) -> NvmlAnswer:
        gpus = [
            {"index": index, "uuid": f"GPU-{index}", "pci": f"0000{pci}.0", "recovery_action": 0}
            for index, pci in enumerate(PCIS)
        ]
        gpus[1] |= second
        return NvmlAnswer(count=2, gpus=tuple(GpuAnswer.model_validate(gpu) for gpu in gpus))


class Node:
    """A host under test."""

    def __init__(self, folder: Path) -> None:
        self.log = KernelLogFile(folder / "kmsg")
        self.nvml = Nvml()
        self.checks: tuple[Check, ...] = ()
        self.machine = Machine(HostFacts(instance_type="p5.48xlarge", pci_known=True), efa_devices=32)
        self.now = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
        self.boot_id_path = folder / "boot_id"
        self.boot_id_path.write_text("boot-1\n")
        self.settings = NodeSettings(
            node_name="node-a",
            expected_gpus=2,
            kmsg_path=self.log.path,
            boot_id_path=self.boot_id_path,
            state_dir=folder / "state",
            kernel_log_seconds=0.01,
            probe_seconds=0.02,
            quiet_seconds=900,
        )

    def make(self, ask: AskNvml, **settings: Any) -> NodeAgent:
        """An agent that does not run yet."""
        chosen = self.settings.model_copy(update=settings)
        return NodeAgent(chosen, (NvmlCheck(chosen, ask), *self.checks), lambda: self.now, lambda _: self.machine)

    @asynccontextmanager
    async def agent(self, **settings: Any) -> AsyncIterator[NodeAgent]:
        """The agent while it runs."""
        agent = self.make(self.nvml, **settings)
        running = asyncio.create_task(agent.run())
        try:
            await eventually(lambda: agent.passed)
            yield agent
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def codes(agent: NodeAgent) -> list[str]:
    return [fault.code for fault in agent.report().faults]


def shows(agent: NodeAgent, *expected: str) -> Callable[[], bool]:
    return lambda: sorted(codes(agent)) == sorted(expected)


async def test_a_healthy_node_has_nothing_to_report(node: Node) -> None:
    async with node.agent() as agent:
        report = agent.report()
        assert (report.boot_id, report.faults, report.checks_unknown) == ("boot-1", (), ())
        probe = await agent.probe()
        assert (probe.gpus_answered, probe.expected_gpus) == (True, 2)
        assert [gpu.pci for gpu in probe.gpus] == list(PCIS)


async def test_faults_of_both_layers_join_in_one_report(node: Node) -> None:
    node.log.write(XID_119)
    node.nvml.answer = node.nvml.healthy(remap_failed=True)
    async with node.agent() as agent:
        await eventually(shows(agent, "xid-119", "row-remap-failed"))
        assert {fault.boot_id for fault in agent.report().faults} == {"boot-1"}
        assert {fault.component.id for fault in agent.report().faults} == {PCIS[1]}


async def test_the_kernel_log_is_heard_while_nvml_hangs(node: Node) -> None:
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang(deadline: timedelta, library: str) -> NvmlAnswer:
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result()
        return NvmlAnswer(silent="no answer in time")

    agent = node.make(hang)
    running = asyncio.create_task(agent.run())
    node.log.write(XID_119)
    await eventually(shows(agent, "xid-119"))
    assert "nvml" in agent.report().checks_unknown
    release.set()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_restart_of_the_agent_neither_forgets_nor_repeats(node: Node) -> None:
    node.log.write(XID_119, XID_119)
    async with node.agent() as agent:
        await eventually(shows(agent, "xid-119"))
    async with node.agent() as agent:
        (fault,) = agent.report().faults
        assert fault.count == 2
        node.log.write(XID_119)
        await eventually(lambda: agent.report().faults[0].count == 3)


async def test_a_new_boot_starts_clean(node: Node) -> None:
    node.log.write(XID_119)
    async with node.agent() as agent:
        await eventually(shows(agent, "xid-119"))
    node.boot_id_path.write_text("boot-2\n")
    node.log.replace()
    async with node.agent() as agent:
        assert (agent.boot_id, agent.report().faults) == ("boot-2", ())


async def test_a_proven_reset_clears_what_happened_before_it_and_nothing_after(node: Node) -> None:
    node.log.write(XID_119, ACTION_RESET)
    node.nvml.answer = node.nvml.healthy(recovery_action=1)
    async with node.agent() as agent:
        await eventually(shows(agent, "xid-119", "gpu-recovery-action"))
        node.nvml.answer = node.nvml.healthy()
        await agent.note_reset((PCIS[1],))
        assert codes(agent) == []
        node.log.write(XID_119)
        await eventually(shows(agent, "xid-119"))


async def test_a_reset_that_no_clean_pass_proves_clears_nothing_until_one_does(node: Node) -> None:
    node.log.write(XID_119)
    async with node.agent() as agent:
        await eventually(shows(agent, "xid-119"))
        node.nvml.answer = node.nvml.healthy(errors=(16,))
        await agent.note_reset((PCIS[1],))
        assert sorted(codes(agent)) == ["gpu-reset-required", "xid-119"]
    # Also an agent that was started anew in between knows of the reset.
    node.nvml.answer = node.nvml.healthy()
    async with node.agent() as agent:
        await eventually(shows(agent))


async def test_a_fault_of_an_application_goes_by_itself_after_the_quiet_time(node: Node) -> None:
    node.log.write(XID_31, XID_119)
    async with node.agent() as agent:
        await eventually(shows(agent, "xid-31", "xid-119"))
        node.now += timedelta(seconds=901)
        await eventually(shows(agent, "xid-119"))


async def test_one_silent_pass_is_unknown_and_a_second_is_a_fault(node: Node) -> None:
    node.nvml.answer = NvmlAnswer(silent="no answer in time")
    async with node.agent(probe_seconds=3600) as agent:
        assert (codes(agent), agent.report().checks_unknown) == ([], ("nvml",))
        probe = await agent.probe()
        assert (probe.gpus_answered, [fault.code for fault in probe.faults]) == (False, ["nvml-silent"])
        assert probe.faults[0].evidence == ("no answer in time",)
        node.nvml.answer = node.nvml.healthy()
        assert (await agent.probe()).checks_unknown == ()
        assert codes(agent) == []


async def test_one_pass_without_a_gpu_is_unknown_and_a_second_is_a_fault(node: Node) -> None:
    async with node.agent(probe_seconds=3600) as agent:
        healthy = node.nvml.answer
        node.nvml.answer = NvmlAnswer(count=1, gpus=healthy.gpus[:1])
        assert (await agent.probe()).checks_unknown == ("nvml",)
        probe = await agent.probe()
        assert [(fault.code, fault.component.id) for fault in probe.faults] == [("gpu-missing", PCIS[1])]


async def test_a_driver_that_is_being_installed_is_unknown_and_one_that_never_comes_is_a_fault(node: Node) -> None:
    node.nvml.answer = NvmlAnswer(failed=9)
    async with node.agent() as agent:
        assert (codes(agent), agent.report().checks_unknown) == ([], ("nvml",))
        node.now += timedelta(seconds=601)
        await eventually(shows(agent, "driver-not-loaded"))
    # A restart of the agent does not give the driver its time again.
    async with node.agent() as agent:
        await eventually(shows(agent, "driver-not-loaded"))


async def test_a_node_without_gpus_does_not_ask_nvml(node: Node) -> None:
    async with node.agent(expected_gpus=0) as agent:
        assert (codes(agent), agent.report().checks_unknown) == ([], ())
    assert node.nvml.asked == 0


async def test_a_kernel_log_that_cannot_be_read_is_unknown_at_once_and_a_fault_soon(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node.agent() as agent:
        node.log.path.unlink()
        await eventually(lambda: agent.report().checks_unknown == ("kernel-log",))
        assert codes(agent) == []
        node.now += timedelta(seconds=SILENT_LOG_SECONDS + 1)
        await eventually(shows(agent, "kernel-log-silent"))
        node.log.path.write_bytes(b"")
        await eventually(shows(agent))


async def test_an_agent_that_starts_slowly_does_not_take_its_own_start_for_silence_of_the_log(node: Node) -> None:
    node.log.path.unlink()
    agent = node.make(node.nvml)
    node.now += timedelta(seconds=SILENT_LOG_SECONDS + 1)
    running = asyncio.create_task(agent.run())
    await eventually(lambda: node.nvml.asked > 1)
    assert (agent.passed, codes(agent)) == (False, [])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_state_file_that_is_no_state_costs_nothing_but_its_memory(node: Node) -> None:
    (node.settings.state_dir).mkdir()
    (node.settings.state_dir / "agent.json").write_text('{"boot_id": ')
    node.log.write(XID_119)
    async with node.agent() as agent:
        await eventually(shows(agent, "xid-119"))


async def test_a_disk_that_takes_no_state_does_not_stop_the_watch(node: Node) -> None:
    node.settings.state_dir.write_text("a file where the folder should be")
    node.log.write(XID_119)
    async with node.agent() as agent:
        await eventually(shows(agent, "xid-119"))
