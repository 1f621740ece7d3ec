"""The check `nvml` on simulated machines of every kind: real children, the real pynvml, the simulated library."""

import asyncio
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from health.nvml_check import NvmlCheck
from health.settings import NodeSettings
from sickbay.checks import CheckMoment, CheckOutcome, CheckResult, HostFacts
from sickbay.gpu_readings import EccCounts, FabricAnswer, GpuAnswer, LinkAnswer, NvmlAnswer
from simulator.host import native
from simulator.host.faults import Cure, HostFault, HostTrouble
from simulator.host.gpu import GpuTrouble
from simulator.host.machine import HostMachine
from simulator.instance_types import INSTANCE_TYPES
from tests.simulator.hosts import running_host

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
LONG_AGO = timedelta(hours=1)


def check_of(ask: Callable[[timedelta, str], NvmlAnswer] | None = None, **more: object) -> NvmlCheck:
    library = str(native.build().nvml_library)
    settings = NodeSettings.model_validate({"node_name": "n", "nvml_library": library} | more)
    return NvmlCheck(settings, ask) if ask else NvmlCheck(settings)


def moment(kind: str = "", memory: str = "", up: timedelta = LONG_AGO, after: float = 0) -> CheckMoment:
    simulated = INSTANCE_TYPES.get(kind)
    gpus = tuple(f"0000:{index:02x}:00" for index in range(simulated.gpus if simulated else 0))
    now = NOW + timedelta(seconds=after)
    host = HostFacts(instance_type=kind, pci_gpus=gpus, pci_known=bool(kind))
    return CheckMoment(now=now, boot_id="boot-1", boot_seen_at=now - up, host=host, memory=memory)


async def look(
    machine: HostMachine, monkeypatch: pytest.MonkeyPatch, memory: str = "", up: timedelta = LONG_AGO, after: float = 0
) -> CheckOutcome:
    monkeypatch.setenv("SICKBAY_SIM_GPU_STATE", str(machine.driver.state_file))
    at = moment(machine.instance_type.name, memory, up, after)
    return await asyncio.to_thread(check_of().run, at)


def ill(gpu: int, **trouble: object) -> HostFault:
    return HostFault(gpu=gpu, gpu_trouble=GpuTrouble.model_validate(trouble), cured_by=Cure.REBOOT)


def old_driver(version: str) -> HostFault:
    return HostFault(host_trouble=HostTrouble(driver_version=version), cured_by=Cure.REPLACE)


def codes(machine: HostMachine, outcome: CheckOutcome) -> dict[int, set[str]]:
    """Codes by the index of the GPU that they name; -1 is the machine."""
    index = {gpu.pci: gpu.index for gpu in machine.driver.gpus}
    found: dict[int, set[str]] = {}
    for fault in outcome.faults:
        found.setdefault(index.get(fault.component.id, -1), set()).add(fault.code)
    return found


@pytest.mark.parametrize("kind", INSTANCE_TYPES)
async def test_a_well_machine_of_each_kind_is_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """detection 8.15, 8.16: neither absent bridges nor a fabric without a cluster are faults."""
    async with running_host(tmp_path, instance_type=kind) as machine:
        outcome = await look(machine, monkeypatch)
    assert (outcome.result, outcome.faults) == (CheckResult.HEALTHY, ())


@pytest.mark.parametrize("kind", INSTANCE_TYPES)
async def test_a_driver_of_535_leaves_questions_open_and_no_machine_ill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    async with running_host(tmp_path, instance_type=kind) as machine:
        machine.inject(old_driver("535.183.01"))
        outcome = await look(machine, monkeypatch)
    assert (outcome.result, outcome.faults) == (CheckResult.HEALTHY, ())
    assert "recovery action" in outcome.why


async def test_a_library_that_lacks_all_but_the_names_proves_no_health(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = re.findall(r"EXPORTED nvml_return (nvmlDeviceGet\w+)\(", "".join(_sources()))
    kept = ("Handle", "UUID", "Name", "PciInfo", "Count")
    lacking = [name for name in exported if not name.removeprefix("nvmlDeviceGet").startswith(kept)]
    async with running_host(tmp_path, instance_type="p5.48xlarge") as machine:
        machine.inject(
            HostFault(host_trouble=HostTrouble(missing_nvml_functions=tuple(lacking)), cured_by=Cure.REPLACE)
        )
        outcome = await look(machine, monkeypatch)
    assert len(lacking) > 20
    assert (outcome.result, outcome.faults) == (CheckResult.UNKNOWN, ())


def _sources() -> Iterator[str]:
    for source in sorted(native.SOURCES.glob("nvml_*.c")):
        yield source.read_text()


MEMORY = {
    0: ({"uncorrected_errors": 2}, "ecc-uncorrected"),
    1: ({"sram_uncorrected_errors": 5, "sram_threshold_exceeded": True}, "ecc-sram-threshold"),
    2: ({"remap_pending": True}, "row-remap-pending"),
    3: ({"remap_failed": True}, "row-remap-failed"),
    4: ({"remapped_rows": 512}, "row-remap-exhausted"),
    5: ({"spare_rows_gone": True}, "row-remap-spares-low"),
    6: ({"corrected_errors": 30_000_000}, "ecc-corrected-many"),
}
OTHERS = {
    0: ({"temperature": 90}, "gpu-hot"),
    1: ({"memory_temperature": 96}, "gpu-hot"),
    2: ({"pcie_width": 4}, "pcie-width-reduced"),
    3: ({"mig_pending": True}, "gpu-mode-pending"),
    4: ({"nvlinks_down": [3]}, "nvlink-down"),
    5: ({"nvml_error": 14}, "inforom-corrupted"),
    6: ({"nvml_error": 999}, "gpu-not-answering"),
    7: ({"recovery_action": "drain_and_reset"}, "gpu-recovery-action"),
}
FABRIC = {
    0: ({"fabric_pending": True}, "fabric-not-ready"),
    1: ({"fabric_status": 23}, "fabric-refused"),
    2: ({"fabric_mask": 0x10}, "fabric-unhealthy"),
    3: ({"fabric_mask": 0x500}, "fabric-misconfigured"),
}
PAGES = {
    0: ({"retired_pages": 63}, "page-retirement-exhausted"),
    1: ({"page_pending": True}, "page-retirement-pending"),
    2: ({"uncorrected_errors": 1}, "ecc-uncorrected"),
}


@pytest.mark.parametrize(
    ("kind", "troubles"),
    [
        ("p4d.24xlarge", MEMORY),
        ("p5.48xlarge", OTHERS),
        ("p5en.48xlarge", FABRIC),
        ("p6-b200.48xlarge", FABRIC),
        ("p6e-gb200.36xlarge", FABRIC),
        ("p3dn.24xlarge", PAGES),
    ],
)
async def test_each_trouble_is_the_fault_of_its_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, troubles: dict[int, tuple[dict[str, object], str]]
) -> None:
    """detection 8.10, 8.14, 8.15"""
    async with running_host(tmp_path, instance_type=kind) as machine:
        for gpu, (trouble, _) in troubles.items():
            machine.inject(ill(gpu, **trouble))
        outcome = await look(machine, monkeypatch)
    found = codes(machine, outcome)
    assert {gpu: code in found.get(gpu, ()) for gpu, (_, code) in troubles.items()} == dict.fromkeys(troubles, True)
    assert set(found) == set(troubles)


async def test_counters_and_links_are_judged_by_what_earlier_runs_saw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_host(tmp_path, instance_type="p6-b200.48xlarge") as machine:
        before = await look(machine, monkeypatch)
        machine.inject(ill(1, nvlink_failed_recoveries=1))
        after = await look(machine, monkeypatch, before.memory, after=30)
    assert before.result is CheckResult.HEALTHY
    assert codes(machine, after) == {1: {"nvlink-recovery-failed"}}
    assert len(after.memory) < 16_384


async def test_a_power_brake_of_all_gpus_that_lasts_is_the_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_host(tmp_path, instance_type="p6e-gb200.36xlarge") as machine:
        for gpu in range(4):
            machine.inject(ill(gpu, clock_reasons=["power_brake"]))
        outcome = await look(machine, monkeypatch)
        first = outcome
        for minute in range(1, 11):
            outcome = await look(machine, monkeypatch, outcome.memory, after=60 * minute)
    assert first.faults == ()
    assert codes(machine, outcome) == {-1: {"host-power-brake"}}


async def test_mig_devices_are_no_gpus_and_switch_the_links_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SICKBAY_SIM_GPU_STATE", "")
    async with running_host(tmp_path) as machine:
        machine.inject(ill(2, mig=["3g.40gb", "4g.40gb"]))
        monkeypatch.setenv("SICKBAY_SIM_GPU_STATE", str(machine.driver.state_file))
        check = check_of()
        outcome = await asyncio.to_thread(check.run, moment("p5.48xlarge"))
    answer = check.last_answer
    assert answer is not None
    assert (outcome.result, answer.count) == (CheckResult.HEALTHY, 8)
    assert answer.gpus[2].mig_instances == (
        "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
        "NVIDIA H100 80GB HBM3 MIG 4g.40gb",
    )


async def test_a_fabric_under_way_is_starting_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """detection 8.14"""
    async with running_host(tmp_path) as machine:
        for gpu in range(8):
            machine.inject(ill(gpu, fabric_pending=True))
        early = await look(machine, monkeypatch, up=timedelta(minutes=5))
        late = await look(machine, monkeypatch)
    assert (early.result, early.why) == (CheckResult.STARTING, "8 GPUs wait for the fabric manager")
    assert codes(machine, late) == {-1: {"fabric-not-started"}}


@pytest.mark.parametrize(
    ("answer", "up", "result", "faults"),
    [
        (NvmlAnswer(failed=9), timedelta(minutes=1), CheckResult.STARTING, []),
        (NvmlAnswer(failed=9), LONG_AGO, CheckResult.FAULTS, ["driver-not-loaded"]),
        (NvmlAnswer(failed=12), LONG_AGO, CheckResult.FAULTS, ["driver-not-loaded"]),
        (NvmlAnswer(failed=18), LONG_AGO, CheckResult.FAULTS, ["driver-mismatch"]),
        (NvmlAnswer(failed=999), LONG_AGO, CheckResult.UNKNOWN, []),
        (NvmlAnswer(count=8, silent="no answer in time"), LONG_AGO, CheckResult.UNKNOWN, []),
    ],
)
def test_a_driver_that_does_not_answer_is_told_as_what_it_is(
    answer: NvmlAnswer, up: timedelta, result: CheckResult, faults: list[str]
) -> None:
    """detection 8.25: a driver that differs from its library is no hardware's fault."""
    outcome = check_of(lambda _deadline, _library: answer).run(moment("p5.48xlarge", up=up))
    assert (outcome.result, [fault.code for fault in outcome.faults]) == (result, faults)


def test_without_driver_and_without_knowing_of_gpus_nothing_can_be_told() -> None:
    outcome = check_of(lambda _deadline, _library: NvmlAnswer(failed=12)).run(moment())
    assert outcome.result is CheckResult.UNKNOWN


def test_a_machine_without_gpus_needs_no_check() -> None:
    assert check_of().applies(HostFacts(pci_known=True)) == "no NVIDIA GPU on the PCI bus"
    assert check_of(expected_gpus=0).applies(HostFacts()) == "no GPU is expected"
    assert check_of(expected_gpus=8).applies(HostFacts(pci_known=True)) == ""
    assert check_of().applies(HostFacts()) == ""


def test_a_gpu_that_one_pass_misses_is_missing_only_when_the_next_does_too() -> None:
    check = check_of(lambda _deadline, _library: NvmlAnswer(count=0))
    at = moment("p5.48xlarge").model_copy(update={"expected_gpus": 8})
    once = check.run(at)
    twice = check.run(at.model_copy(update={"memory": once.memory}))
    assert (once.result, once.why) == (CheckResult.UNKNOWN, "NVML: 0 of 8 GPUs; further looks decide")
    assert [fault.code for fault in twice.faults] == ["gpu-missing"]


def test_a_driver_that_is_loaded_anew_in_the_midst_of_a_boot_is_no_fault() -> None:
    """The modules go and come, the links train, the GPUs register: each of it looks like a broken machine."""
    down = tuple(LinkAnswer(index=index, active=False) for index in range(18))
    waiting = FabricAnswer(state=2)
    gpus = [
        GpuAnswer(index=index, uuid=f"GPU-{index}", pci=f"00000000:{index:02x}:00.0", name="NVIDIA H100 80GB HBM3")
        for index in range(8)
    ]
    well = tuple(_well(gpu) for gpu in gpus)
    training = tuple(gpu.model_copy(update={"links": down, "fabric": waiting}) for gpu in well)
    one_link = (well[0].model_copy(update={"links": (down[0], *(well[0].links or ())[1:])}), *well[1:])
    looks = [
        (NvmlAnswer(count=8, gpus=well), CheckResult.HEALTHY),
        (NvmlAnswer(failed=9), CheckResult.UNKNOWN),
        (NvmlAnswer(count=8, gpus=training), CheckResult.UNKNOWN),
        (NvmlAnswer(count=8, gpus=training), CheckResult.UNKNOWN),
        (NvmlAnswer(count=8, gpus=one_link), CheckResult.UNKNOWN),
        (NvmlAnswer(count=8, gpus=well), CheckResult.HEALTHY),
    ]
    memory = ""
    for minute, (answer, result) in enumerate(looks):
        outcome = check_of(lambda _deadline, _library, answer=answer: answer).run(  # type: ignore[misc]
            moment("p5.48xlarge", memory, after=60 * minute)
        )
        assert (outcome.result, outcome.faults) == (result, ()), minute
        memory = outcome.memory


def _well(gpu: GpuAnswer) -> GpuAnswer:
    links = tuple(LinkAnswer(index=index, active=True) for index in range(18))
    registered = FabricAnswer(state=3, status=0, cluster_uuid="0" * 32)
    memory = {"ecc_enabled": True, "ecc_volatile": EccCounts(uncorrected=0), "remap_pending": False}
    return gpu.model_copy(update={"links": links, "fabric": registered, "remap_failed": False, **memory})


def test_what_another_version_remembered_is_forgotten() -> None:
    check = check_of(lambda _deadline, _library: NvmlAnswer(count=0))
    for memory in ("nonsense", '{"history": 3}', "[]"):
        assert check.run(moment("g5.xlarge", memory)).result is CheckResult.HEALTHY
