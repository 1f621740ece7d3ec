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
from health.settings import Listening, NodeSettings
from sickbay.catalogue import fault_of
from sickbay.checks import ActiveDepth, CheckCost, HostFacts, healthy, judged, unknown
from sickbay.faults import Component, ComponentKind, Fault, Rung
from sickbay.gpu_readings import GpuAnswer, NvmlAnswer
from tests.eventually import eventually

from .records import ACTION_RESET, XID_31, XID_79, XID_119, KernelLogFile
from .stand_in_checks import AT_ONCE, Hanging, Told, about

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


class Events:
    """NVML's events, as the test tells them."""

    def __init__(self) -> None:
        self.listens = False
        self.heard: tuple[Fault, ...] = ()

    def start(self) -> None:
        self.listens = True

    def stop(self, patience: timedelta = timedelta()) -> bool:
        self.listens = False
        return True

    def take(self) -> tuple[Fault, ...]:
        return self.heard


class Node:
    """A host under test."""

    def __init__(self, folder: Path) -> None:
        self.log = KernelLogFile(folder / "kmsg")
        self.nvml = Nvml()
        self.checks: tuple[Check, ...] = ()
        self.events = Events()
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
        checks = (NvmlCheck(chosen, ask), *self.checks)
        return NodeAgent(chosen, checks, lambda: self.now, lambda _: self.machine, self.events)

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


def xid(number: int, count: int = 1) -> Fault:
    component = Component(kind=ComponentKind.GPU, id=PCIS[1])
    return fault_of(f"xid-{number}", component, boot_id="boot-1").model_copy(update={"count": count})


async def test_what_the_ring_lost_of_the_boot_s_beginning_comes_from_the_journal(node: Node, tmp_path: Path) -> None:
    printed = tmp_path / "journal"
    printed.write_text(f"[    0.000500] kernel: {XID_79}\n")
    node.log.skip(1000)
    node.log.write("what the ring still has")
    async with node.agent(journal_command=f"/bin/sh -c 'cat {printed}'") as agent:
        await eventually(shows(agent, "xid-79"))
        assert codes(agent) == ["xid-79"]


async def test_a_beginning_that_nobody_has_is_a_gap(node: Node) -> None:
    node.log.skip(1000)
    node.log.write("what the ring still has")
    async with node.agent(journal_command="false") as agent:
        await eventually(shows(agent, "kernel-log-gap"))
        assert [fault.count for fault in agent.report().faults] == [1000]


async def test_an_xid_that_only_an_event_told_is_a_fault_once(node: Node) -> None:
    async with node.agent(nvml_events=Listening.ALWAYS) as agent:
        await eventually(lambda: node.events.listens)
        node.events.heard = (xid(119),)
        await eventually(shows(agent, "xid-119"))
        node.log.write(XID_119)
        await eventually(lambda: "GSP" in str(agent.report().faults[0].evidence))
        assert [fault.count for fault in agent.report().faults] == [1]
    assert not node.events.listens


async def test_an_event_from_before_a_reset_does_not_come_back_after_it(node: Node) -> None:
    async with node.agent() as agent:
        node.events.heard = (xid(119),)
        await eventually(shows(agent, "xid-119"))
        await agent.note_reset((PCIS[1],))
        assert codes(agent) == []
        await agent.probe()
        assert codes(agent) == []
        node.events.heard = (xid(119, count=2),)
        await eventually(shows(agent, "xid-119"))


async def test_nobody_of_ours_listens_during_a_reset(node: Node) -> None:
    async with node.agent(nvml_events=Listening.ALWAYS) as agent:
        await eventually(lambda: node.events.listens)
        async with agent.driver_untouched():
            node.log.write(XID_119)
            await eventually(shows(agent, "xid-119"))
            assert not node.events.listens
        assert node.events.listens


async def test_events_are_listened_to_only_while_the_kernel_log_is_silent(node: Node) -> None:
    async with node.agent() as agent:
        await agent.probe()
        assert not node.events.listens
        node.log.path.unlink()
        await agent.probe()
        node.now += timedelta(minutes=1)
        await eventually(lambda: node.events.listens)


async def test_one_check_hangs_and_everything_else_goes_on(node: Node) -> None:
    hanging = Hanging()
    well = Told(about("disks"))
    node.checks = (Told(about("efa", deadline=AT_ONCE), hanging), well)
    async with node.agent() as agent:
        assert agent.report().checks_unknown == ("efa",)
        seen = len(well.moments)
        node.log.write(XID_119)
        await eventually(lambda: {"xid-119", "check-silent"} <= set(codes(agent)))
        await eventually(lambda: len(well.moments) > seen)
        probe = await agent.probe()
        assert probe.gpus_answered
        assert probe.checks_unknown == ("efa",)
        results = {report.name: report.result.value for report in probe.checks}
        assert results == {"kernel-log": "faults", "nvml": "healthy", "efa": "unknown", "disks": "healthy"}
    hanging.released.set()


async def test_what_checks_have_shown_outlives_the_agent_and_not_the_boot(node: Node) -> None:
    """Detection 8.9: a monitor that is killed again and again forgets neither its faults nor its own silence."""
    lost = fault_of("driver-hung", Component(kind=ComponentKind.DRIVER, id="nvidia"), boot_id="boot-1")
    node.checks = (
        Told(about("processes"), lambda moment: judged([lost])),
        Told(about("efa"), lambda moment: unknown("sysfs cannot be read")),
    )
    async with node.agent() as agent:
        await eventually(shows(agent, "driver-hung", "check-silent"))
    node.checks = (Told(about("processes")), Told(about("efa", every=timedelta(hours=1))))
    async with node.agent() as agent:
        assert "driver-hung" in codes(agent)
        await eventually(shows(agent, "driver-hung"))
    node.boot_id_path.write_text("boot-2\n")
    async with node.agent() as agent:
        assert codes(agent) == []


async def test_a_fault_of_a_check_goes_after_a_proven_reset_and_a_fresh_full_pass(node: Node) -> None:
    wrong = fault_of("gpu-lost", Component(kind=ComponentKind.GPU, id=PCIS[1]), boot_id="boot-1")
    wrong = wrong.model_copy(update={"rung": Rung.RESET_GPU})
    check = Told(about("dcgm-health"), lambda moment: judged([wrong]))
    node.checks = (check,)
    async with node.agent() as agent:
        await eventually(shows(agent, "gpu-lost"))
        check.answer = lambda moment: healthy()
        await agent.probe()
        assert codes(agent) == ["gpu-lost"]
        node.now += timedelta(seconds=1)
        await agent.note_reset((PCIS[1],))
        assert (await agent.probe()).faults == ()


async def test_the_depth_of_a_probe_reaches_the_checks_that_load_gpus(node: Node) -> None:
    active = Told(about("active", cost=CheckCost.EXCLUSIVE, every=timedelta()))
    node.checks = (active,)
    async with node.agent() as agent:
        await agent.probe()
        assert active.moments == []
        await agent.probe(expected_gpus=2, depth=ActiveDepth.BURN_IN, burn_in=timedelta(minutes=1))
        (moment,) = active.moments
    assert (moment.depth, moment.burn_in, moment.expected_gpus) == (ActiveDepth.BURN_IN, timedelta(minutes=1), 2)
