"""The simulated dcgmi and dcgm-exporter tell of the GPUs as they are, in the words of the real ones."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sickbay.checks import CheckOutcome, CheckResult
from sickbay.dcgm.diag import judge_diag_output
from sickbay.dcgm.exporter import judge_page
from sickbay.dcgm.health import judge_health_output
from sickbay.dcgm.live import addresses
from sickbay.dcgm.nvlinks import judge_nvlinks
from sickbay.recorded.model import RecordedContext
from simulator.clock import Clock
from simulator.host import native
from simulator.host.faults import Cure, HostFault, HostTrouble
from simulator.host.gpu import GpuTrouble
from simulator.host.machine import HostMachine, Site
from simulator.machine import Power
from tests.simulator.hosts import AT_ONCE, Ended, lost, run_program
from tests.simulator.waiting import until

DCGMI = native.build().dcgmi


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[HostMachine]:
    host = HostMachine(
        "i-0123456789abcdef0", "node-a", "p5.48xlarge", Site(Clock(1000), native.build(), tmp_path, AT_ONCE, dcgm=4)
    )
    await host.start()
    try:
        await until(lambda: host.power is Power.RUNNING)
        yield host
    finally:
        await host.stop()


def ill(gpu: int | None = 3, **trouble: object) -> HostFault:
    return HostFault(gpu=gpu, gpu_trouble=GpuTrouble.model_validate(trouble), cured_by=Cure.REBOOT)


async def ask(machine: HostMachine, words: str) -> Ended:
    return await run_program(machine, DCGMI, *words.split())


async def health(machine: HostMachine) -> CheckOutcome:
    ended = await ask(machine, "health -c -j")
    outcome = judge_health_output(ended.text, ended.code)
    assert outcome is not None
    return outcome


async def test_health_needs_its_watches_which_a_boot_forgets(machine: HostMachine) -> None:
    off = Ended(253, "Error: Health watches not enabled. Please enable watches. \n")
    assert await ask(machine, "health -c -j") == off
    assert (await ask(machine, "health -s a")).code == 0
    assert (await health(machine)).result is CheckResult.HEALTHY
    before = machine.boot_id
    await machine.reboot()
    await until(lambda: machine.boot_id not in ("", before))
    assert await ask(machine, "health -c -j") == off


async def test_a_sick_gpu_shows_in_health_and_diagnostic(machine: HostMachine) -> None:
    machine.inject(ill(remap_pending=True))
    await ask(machine, "health -s a")
    (fault,) = (await health(machine)).faults
    assert (fault.code, fault.component.id) == ("row-remap-pending", "index 3")
    ended = await ask(machine, "diag -r 2 -j")
    (fault,) = judge_diag_output(ended.text, ended.code, 8).faults
    assert (ended.code, fault.code, fault.component.id) == (205, "row-remap-pending", "index 3")


@pytest.mark.parametrize("version", ["3", "4"])
async def test_a_diagnostic_of_well_gpus_passes_in_either_version(
    machine: HostMachine, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    ended = await run_program(
        machine, Path("/usr/bin/env"), f"SICKBAY_SIM_DCGM={version}", str(DCGMI), "diag", "-r", "2", "-j"
    )
    assert ("DCGM GPU Diagnostic" in ended.text) is (version == "3")
    assert judge_diag_output(ended.text, ended.code, 8).result is CheckResult.HEALTHY


async def test_the_gpus_are_discovered_with_their_addresses(machine: HostMachine) -> None:
    known = addresses((await ask(machine, "discovery -l")).text)
    assert known == {str(gpu.index): gpu.pci for gpu in machine.driver.gpus}


async def test_links_that_are_down_show_as_such(machine: HostMachine) -> None:
    machine.inject(ill(nvlinks_down=(2, 5)))
    outcome = judge_nvlinks((await ask(machine, "nvlink -s")).text, RecordedContext())
    assert outcome is not None
    (fault,) = outcome.faults
    assert (fault.code, fault.component.id) == ("nvlink-down", "index 3")


async def test_without_a_driver_dcgm_says_so(machine: HostMachine) -> None:
    trouble = HostTrouble(nvml_init_error=9)
    machine.inject(HostFault(host_trouble=trouble, cured_by=Cure.REBOOT))
    assert (await ask(machine, "diag -r 1 -j")).code == 200


async def fetch(machine: HostMachine) -> str:
    assert machine.exporter is not None
    host, port = machine.exporter.url.removeprefix("http://").removesuffix("/metrics").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    try:
        return (await reader.read()).decode()
    finally:
        writer.close()
        await writer.wait_closed()


async def test_the_page_of_well_gpus_is_well_and_lacks_a_lost_one(machine: HostMachine) -> None:
    head, _, page = (await fetch(machine)).partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200")
    assert judge_page(page, 8).result is CheckResult.HEALTHY
    machine.inject(lost())
    _, _, page = (await fetch(machine)).partition("\r\n\r\n")
    assert judge_page(page, 8).result is not CheckResult.HEALTHY


async def test_the_page_never_comes_while_the_driver_hangs(machine: HostMachine) -> None:
    machine.inject(HostFault(host_trouble=HostTrouble(driver_hangs=True), cured_by=Cure.REBOOT))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await fetch(machine)
