"""The simulated NVML library under the real pynvml, and the simulated nvidia-smi."""

import asyncio
from pathlib import Path

import pytest

from simulator.host import native
from simulator.host.faults import Cure, HostFault, HostTrouble
from simulator.host.gpu import GpuTrouble
from tests.simulator.hosts import lost, nvidia_smi, pynvml, reset_needed, running_host

READINGS = """
h = gpu(3)
field = nvml.nvmlDeviceGetFieldValues(h, [230])[0]
fabric = nvml.c_nvmlGpuFabricInfo_v3_t()
nvml.nvmlDeviceGetGpuFabricInfoV(h, nvml.byref(fabric))
answer = {
    "count": nvml.nvmlDeviceGetCount(),
    "driver": nvml.nvmlSystemGetDriverVersion(),
    "same": nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByUUID(nvml.nvmlDeviceGetUUID(h)))
    == nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByPciBusId("0000:86:00.0")),
    "pci": nvml.nvmlDeviceGetPciInfo(h).busId,
    "bus": nvml.nvmlDeviceGetPciInfo(h).bus,
    "name": nvml.nvmlDeviceGetName(h),
    "serial": nvml.nvmlDeviceGetSerial(h),
    "minor": nvml.nvmlDeviceGetMinorNumber(h),
    "action": [field.nvmlReturn, field.value.uiVal],
    "rows": nvml.nvmlDeviceGetRemappedRows(h),
    "ecc": nvml.nvmlDeviceGetTotalEccErrors(h, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC),
    "processes": [process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(h)],
    "links": [nvml.nvmlDeviceGetNvLinkState(h, link) for link in (0, 4)],
    "fabric": [fabric.state, fabric.status],
    "mig": nvml.nvmlDeviceGetMigMode(h),
    "memory": nvml.nvmlDeviceGetMemoryInfo(h).total,
}
"""


def ill(gpu: int | None = 3, **trouble: object) -> HostFault:
    return HostFault(gpu=gpu, gpu_trouble=GpuTrouble.model_validate(trouble), cured_by=Cure.REBOOT)


def host_ill(**trouble: object) -> HostFault:
    return HostFault(host_trouble=HostTrouble.model_validate(trouble), cured_by=Cure.REBOOT)


async def test_a_healthy_gpu_tells_pynvml_who_it_is_and_that_it_is_well(tmp_path: Path) -> None:
    async with running_host(tmp_path) as machine:
        seen = await pynvml(machine, READINGS)
    identity = machine.driver.gpus[3]
    assert seen["count"] == 8
    assert seen["same"]
    assert (seen["pci"], seen["bus"]) == ("00000000:86:00.0", 0x86)
    assert (seen["name"], seen["serial"], seen["minor"]) == ("NVIDIA H100 80GB HBM3", identity.serial, 3)
    assert seen["action"] == [0, 0]
    assert seen["rows"] == [0, 0, 0, 0]
    assert (seen["ecc"], seen["processes"], seen["links"]) == (0, [], [1, 1])
    assert (seen["fabric"], seen["mig"], seen["memory"]) == ([3, 0], [0, 0], 80 << 30)


async def test_troubles_show_in_the_readings_at_once(tmp_path: Path) -> None:
    async with running_host(tmp_path) as machine:
        machine.inject(
            ill(
                recovery_action="drain_and_reset",
                remap_pending=True,
                remap_failed=True,
                uncorrected_errors=7,
                nvlinks_down=[4],
                fabric_pending=True,
            )
        )
        assert machine.occupy("pod-1", 3) == (0, 1, 2)
        seen = await pynvml(machine, READINGS)
    assert seen["action"] == [0, 4]
    assert seen["rows"][2:] == [1, 1]
    assert (seen["ecc"], seen["links"], seen["fabric"][0]) == (7, [1, 0], 2)


async def test_processes_of_a_pod_are_on_its_gpus_until_it_leaves(tmp_path: Path) -> None:
    processes = "answer = [len(nvml.nvmlDeviceGetComputeRunningProcesses(gpu(i))) for i in range(3)]"
    async with running_host(tmp_path) as machine:
        assert machine.occupy("pod-1", 2) == (0, 1)
        assert machine.occupy("pod-1", 2) == (0, 1)
        assert machine.occupy("pod-2", 7) == ()
        assert await pynvml(machine, processes) == [1, 1, 0]
        apps = await nvidia_smi(machine, "--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader")
        assert [line.split(", ")[0] for line in apps.text.splitlines()] == [gpu.uuid for gpu in machine.driver.gpus[:2]]
        machine.vacate("pod-1")
        assert await pynvml(machine, processes) == [0, 0, 0]


@pytest.mark.parametrize("error", [10, 999])
async def test_a_gpu_answers_every_reading_with_its_error(tmp_path: Path, error: int) -> None:
    async with running_host(tmp_path) as machine:
        machine.inject(ill(nvml_error=error))
        assert await pynvml(machine, "answer = nvml.nvmlDeviceGetRemappedRows(gpu(3))") == {"error": error}
        assert await pynvml(machine, "answer = nvml.nvmlDeviceGetRemappedRows(gpu(2))") == [0, 0, 0, 0]


async def test_a_gpu_that_wants_a_reset_tells_its_identity_and_its_wish_alone(tmp_path: Path) -> None:
    async with running_host(tmp_path) as machine:
        machine.inject(reset_needed(gpu=3))
        known = await pynvml(machine, "answer = nvml.nvmlDeviceGetUUID(gpu(3))")
        action = await pynvml(machine, "answer = nvml.nvmlDeviceGetFieldValues(gpu(3), [230])[0].value.uiVal")
        rows = await pynvml(machine, "answer = nvml.nvmlDeviceGetRemappedRows(gpu(3))")
    assert (known, action, rows) == (machine.driver.gpus[3].uuid, 1, {"error": 16})


async def test_a_lost_gpu_is_counted_but_cannot_be_had(tmp_path: Path) -> None:
    async with running_host(tmp_path) as machine:
        machine.inject(lost(gpu=5))
        assert await pynvml(machine, "answer = nvml.nvmlDeviceGetCount()") == 8
        assert await pynvml(machine, "answer = nvml.nvmlDeviceGetUUID(gpu(5))") == {"error": 15}
        assert (await nvidia_smi(machine, "-L")).code == 15
        assert machine.gpu_allocatable == 7


async def test_an_old_driver_does_not_tell_a_recovery_action(tmp_path: Path) -> None:
    async with running_host(tmp_path) as machine:
        machine.inject(ill(recovery_action="untold"))
        machine.inject(host_ill(missing_nvml_functions=["nvmlDeviceGetGpuFabricInfoV"]))
        field = await pynvml(machine, "answer = nvml.nvmlDeviceGetFieldValues(gpu(3), [230])[0].nvmlReturn")
        fabric = await pynvml(machine, "answer = nvml.nvmlDeviceGetGpuFabricInfoV(gpu(3), None)")
    assert (field, fabric) == (3, {"error": 13})


@pytest.mark.parametrize("error", [9, 18])
async def test_a_driver_that_cannot_start_fails_nvml_and_nvidia_smi(tmp_path: Path, error: int) -> None:
    async with running_host(tmp_path) as machine:
        machine.inject(host_ill(nvml_init_error=error))
        assert await pynvml(machine, "answer = 0") == {"error": error}
        assert (await nvidia_smi(machine, "-L")).code == error


@pytest.mark.parametrize("fault", [host_ill(driver_hangs=True), ill(gpu=3, hangs=True)])
async def test_a_call_into_a_wedged_driver_never_returns(tmp_path: Path, fault: HostFault) -> None:
    async with running_host(tmp_path) as machine:
        machine.inject(fault)
        calls = [
            asyncio.create_task(pynvml(machine, "answer = nvml.nvmlDeviceGetUUID(gpu(3))")),
            asyncio.create_task(nvidia_smi(machine, "-q")),
            asyncio.create_task(nvidia_smi(machine, "--gpu-reset", "-i", "3")),
        ]
        returned, _ = await asyncio.wait(calls, timeout=1, return_when=asyncio.FIRST_COMPLETED)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    assert not returned


async def test_nvidia_smi_answers_queries_as_csv(tmp_path: Path) -> None:
    async with running_host(tmp_path, instance_type="g5.xlarge") as machine:
        asked = "--query-gpu=index,pci.bus_id,memory.total,gpu_recovery_action"
        with_header = await nvidia_smi(machine, asked, "--format=csv")
        bare = await nvidia_smi(machine, asked, "--format=csv,noheader,nounits")
        report = await nvidia_smi(machine, "-q")
        listing = await nvidia_smi(machine, "-L")
    assert with_header.text.splitlines() == [
        "index, pci.bus_id, memory.total [MiB], gpu_recovery_action",
        "0, 00000000:53:00.0, 24576 MiB, None",
    ]
    assert bare.text == "0, 00000000:53:00.0, 24576, None\n"
    assert "GPU Recovery Action                   : None" in report.text
    assert listing.text == f"GPU 0: NVIDIA A10G (UUID: {machine.driver.gpus[0].uuid})\n"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--query-gpu=nonsense", "--format=csv"), 2),
        (("--query-gpu=index",), 2),
        (("--nonsense",), 2),
        (("-L", "-i", "9"), 6),
        (("-L", "-i", "0000:86:00"), 6),  # the manual wants domain:bus:device.function
        (("--gpu-reset", "-i", "GPU-unknown"), 6),
    ],
)
async def test_nvidia_smi_refuses_what_it_does_not_know(tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    async with running_host(tmp_path) as machine:
        refused = await nvidia_smi(machine, *words)
    assert (refused.code, bool(refused.text)) == (code, True)


def test_building_again_builds_nothing(tmp_path: Path) -> None:
    first = native.build(tmp_path)
    before = first.nvidia_smi.stat().st_mtime_ns
    assert native.build(tmp_path) == first
    assert first.nvidia_smi.stat().st_mtime_ns == before


def test_without_a_compiler_the_cure_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(native.NativeBuildError, match="install gcc or clang"):
        native.build(tmp_path)
