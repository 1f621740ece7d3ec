"""The DCGM layer with the simulated dcgmi and exporter, in real child processes (detection 8.12, 8.17, 8.18)."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from health.check import Check
from health.dcgm import DcgmDiagCheck, DcgmHealthCheck
from health.dcgm_exporter import DcgmExporterCheck
from health.settings import NodeSettings
from sickbay.checks import ActiveDepth, CheckMoment, CheckOutcome, CheckResult, HostFacts
from sickbay.faults import Rung
from simulator.clock import Clock
from simulator.host import native
from simulator.host.dcgm_exporter import dcgm_names
from simulator.host.faults import Cure, HostFault, HostTrouble
from simulator.host.gpu import GpuTrouble
from simulator.host.machine import HostMachine, Site
from simulator.machine import Power
from tests.simulator.hosts import AT_ONCE
from tests.simulator.waiting import until

BOOT = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = BOOT + timedelta(hours=1)


@pytest.fixture
async def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HostMachine]:
    site = Site(Clock(1000), native.build(), tmp_path / "sim", AT_ONCE, dcgm=4)
    host = HostMachine("i-0123456789abcdef0", "node-a", "p5.48xlarge", site)
    await host.start()
    try:
        await until(lambda: host.power is Power.RUNNING)
        assert host.exporter is not None
        for name, value in dcgm_names(native.build(), 4, host.exporter.url).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("SICKBAY_SIM_GPU_STATE", str(host.driver.state_file))
        yield host
    finally:
        await host.stop()


def settings(tmp_path: Path, **changes: object) -> NodeSettings:
    given = {
        "node_name": "node-a",
        "nvml_library": str(native.build().nvml_library),
        "kubelet_socket": tmp_path / "kubelet.sock",
        **changes,
    }
    return NodeSettings.model_validate(NodeSettings(node_name="node-a").model_dump() | given)


async def run(
    check: Check, memory: str = "", now: datetime = LATER, depth: ActiveDepth = ActiveDepth.NONE
) -> CheckOutcome:
    moment = CheckMoment(now=now, boot_id="boot-1", boot_seen_at=BOOT, memory=memory, depth=depth, expected_gpus=8)
    return await asyncio.to_thread(check.run, moment)


def ill(gpu: int | None = 3, **trouble: object) -> HostFault:
    return HostFault(gpu=gpu, gpu_trouble=GpuTrouble.model_validate(trouble), cured_by=Cure.REBOOT)


HANGS = HostFault(host_trouble=HostTrouble(driver_hangs=True), cured_by=Cure.REBOOT)


async def test_watches_are_switched_on_once_and_asked_when_they_have_sampled(
    machine: HostMachine, tmp_path: Path
) -> None:
    check = DcgmHealthCheck(settings(tmp_path))
    first = await run(check)
    assert (first.result, first.why) == (CheckResult.STARTING, "DCGM's health watches were off, and are on now")
    early = await run(check, first.memory, LATER + timedelta(seconds=30))
    assert early.result is CheckResult.STARTING
    assert (await run(check, early.memory, LATER + timedelta(seconds=61))).result is CheckResult.HEALTHY


async def watching(check: Check) -> str:
    """The memory of a check whose watches have sampled."""
    first = await run(check, now=LATER - timedelta(minutes=5))
    return (await run(check, first.memory)).memory


async def test_a_fault_is_told_by_the_kernels_address_with_time_and_boot(machine: HostMachine, tmp_path: Path) -> None:
    check = DcgmHealthCheck(settings(tmp_path))
    memory = await watching(check)
    machine.inject(ill(remap_failed=True))
    (fault,) = (await run(check, memory)).faults
    assert (fault.code, fault.component.id) == ("row-remap-failed", machine.driver.gpus[3].pci)
    assert (fault.boot_id, fault.first_seen, fault.rung) == ("boot-1", LATER, Rung.REPLACE)


async def test_a_dcgm_that_hangs_with_the_driver_is_unknown_in_time(machine: HostMachine, tmp_path: Path) -> None:
    check = DcgmHealthCheck(settings(tmp_path, dcgm_seconds=0.3))
    machine.inject(HANGS)
    outcome = await run(check, "what was remembered")
    assert (outcome.result, outcome.why, outcome.faults) == (CheckResult.UNKNOWN, "dcgmi: no answer in time", ())


async def test_no_dcgmi_on_a_node_is_nothing_to_judge(tmp_path: Path) -> None:
    for check in (DcgmHealthCheck(settings(tmp_path)), DcgmDiagCheck(settings(tmp_path))):
        assert check.applies(HostFacts(pci_known=True)) == "no NVIDIA GPU on the PCI bus"
    missing = settings(tmp_path, dcgmi_command="/nowhere/dcgmi")
    assert (await run(DcgmHealthCheck(missing))).result is CheckResult.NOT_APPLICABLE
    assert (await run(DcgmDiagCheck(missing), depth=ActiveDepth.QUICK)).result is CheckResult.NOT_APPLICABLE


def script(tmp_path: Path, body: str) -> str:
    path = tmp_path / "dcgmi"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("body", "result", "faults"),
    [
        ("echo 'Error: unable to establish a connection'; exit 235", CheckResult.UNKNOWN, set()),
        ("echo nonsense", CheckResult.UNKNOWN, set()),
        ("kill -SEGV $$", CheckResult.UNKNOWN, set()),
        ("exit 238", CheckResult.FAULTS, {"gpu-lost"}),
        ("exit 237", CheckResult.FAULTS, {"gpu-reset-required"}),
    ],
)
async def test_an_end_of_dcgmi_means_what_its_code_says(
    tmp_path: Path, body: str, result: CheckResult, faults: set[str]
) -> None:
    outcome = await run(DcgmHealthCheck(settings(tmp_path, dcgmi_command=script(tmp_path, body))))
    assert (outcome.result, {fault.code for fault in outcome.faults}) == (result, faults)
    assert outcome.why


async def test_a_host_engine_that_is_not_up_yet_is_starting_only_after_a_boot(tmp_path: Path) -> None:
    check = DcgmHealthCheck(settings(tmp_path, dcgmi_command=script(tmp_path, "exit 235")))
    assert (await run(check, now=BOOT + timedelta(minutes=2))).result is CheckResult.STARTING
    assert (await run(check, now=BOOT + timedelta(minutes=11))).result is CheckResult.UNKNOWN


async def test_a_diagnostic_runs_only_when_asked_and_on_an_idle_node(machine: HostMachine, tmp_path: Path) -> None:
    check = DcgmDiagCheck(settings(tmp_path))
    assert (await run(check)).result is CheckResult.NOT_APPLICABLE
    assert (await run(check, depth=ActiveDepth.QUICK)).result is CheckResult.HEALTHY
    assert (await run(check, depth=ActiveDepth.BURN_IN)).result is CheckResult.HEALTHY
    machine.occupy("pod-1", 1)
    busy = await run(check, depth=ActiveDepth.QUICK)
    assert (busy.result, busy.why) == (CheckResult.NOT_APPLICABLE, "needs all GPUs of the node idle")


async def test_a_diagnostic_tells_the_sick_gpu_by_its_address(machine: HostMachine, tmp_path: Path) -> None:
    machine.inject(ill(gpu=5, remap_pending=True))
    (fault,) = (await run(DcgmDiagCheck(settings(tmp_path)), depth=ActiveDepth.QUICK)).faults
    assert (fault.code, fault.component.id) == ("row-remap-pending", machine.driver.gpus[5].pci)


async def test_while_the_driver_hangs_no_diagnostic_is_begun(machine: HostMachine, tmp_path: Path) -> None:
    machine.inject(HANGS)
    outcome = await run(DcgmDiagCheck(settings(tmp_path, nvml_seconds=0.3)), depth=ActiveDepth.QUICK)
    assert outcome.result is CheckResult.UNKNOWN
    assert "idle" in outcome.why


async def test_the_page_of_the_exporter_is_judged_and_a_changed_xid_counts(
    machine: HostMachine, tmp_path: Path
) -> None:
    check = DcgmExporterCheck(settings(tmp_path))
    first = await run(check)
    assert (first.result, first.why) == (CheckResult.HEALTHY, "GPUs on the page: 8")
    pci = machine.driver.gpus[2].pci
    machine.driver.events.path.write_text("2 8 79\n")
    (fault,) = (await run(check, first.memory)).faults
    assert (fault.code, fault.component.id, fault.boot_id) == ("xid-79", pci, "boot-1")


async def test_an_exporter_that_hangs_or_is_gone_is_unknown(
    machine: HostMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = DcgmExporterCheck(settings(tmp_path))
    monkeypatch.setattr("health.dcgm_exporter.DEADLINE", timedelta(seconds=1))
    machine.inject(HANGS)
    assert (await run(check)).why == "dcgm-exporter: no answer in time"
    gone = DcgmExporterCheck(settings(tmp_path, dcgm_exporter_url=f"http://127.0.0.1:{free_port()}/metrics"))
    assert "refused" in (await run(gone)).why
    assert (await run(gone, now=BOOT + timedelta(minutes=1))).result is CheckResult.STARTING


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def dripping() -> Iterator[str]:
    """A server that sends its page a byte at a time for ever, within any timeout of a socket."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        stop = threading.Event()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while not stop.wait(0.05):
                    try:
                        connection.sendall(b"#")
                    except OSError:
                        return

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/metrics"
        stop.set()
        thread.join()


async def test_a_page_that_drips_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("health.dcgm_exporter.DEADLINE", timedelta(seconds=1))
    with dripping() as url:
        outcome = await run(DcgmExporterCheck(settings(tmp_path, dcgm_exporter_url=url)))
    assert outcome.why == "dcgm-exporter: no answer in time"


def test_without_a_page_there_is_nothing_to_judge(tmp_path: Path) -> None:
    assert "SICKBAY_DCGM_EXPORTER_URL" in DcgmExporterCheck(settings(tmp_path)).applies(HostFacts())
