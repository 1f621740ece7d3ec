import pytest

from sickbay.active.idleness import Idleness, PodDevice, PodUse, idleness
from sickbay.gpu_readings import GpuAnswer, NvmlAnswer

A, B = "GPU-aaaa", "GPU-bbbb"


def gpu(index: int, uuid: str, **more: object) -> GpuAnswer:
    known = {"index": index, "uuid": uuid, "pci": f"00000000:{0x50 + index:X}:00.0", "process_count": 0, "minor": index}
    return GpuAnswer.model_validate(known | more)


def answer(*gpus: GpuAnswer) -> NvmlAnswer:
    return NvmlAnswer(count=len(gpus), gpus=gpus)


def pods(*devices: str, resource: str = "nvidia.com/gpu") -> PodUse:
    return PodUse(kubelet=True, devices=tuple(PodDevice(resource=resource, id=device) for device in devices))


def idle(found: Idleness) -> list[str]:
    return [gpu.uuid for gpu in found.idle]


TWO = answer(gpu(0, A), gpu(1, B))


def test_gpus_without_processes_and_pods_are_idle() -> None:
    found = idleness(TWO, PodUse())
    assert idle(found) == [A, B]
    assert (found.idle[0].pci, found.idle[0].visible) == ("0000:50:00", (A,))


def test_a_process_makes_a_gpu_busy() -> None:
    found = idleness(answer(gpu(0, A, process_count=2), gpu(1, B)), PodUse())
    assert (idle(found), found.left_out) == ([B], ("GPU 0 has 2 processes",))


@pytest.mark.parametrize("device", [A, f"{A}::0", f"{A}::11", f"MIG-{A}/3/0", "gpu-0", "nvidia0", "nvidia0/gi1"])
def test_a_gpu_that_a_pod_has_is_busy_before_it_is_used(device: str) -> None:
    found = idleness(TWO, pods(device))
    assert (idle(found), found.left_out) == ([B], ("GPU 0 is given to a pod",))


def test_a_claim_names_a_gpu_by_its_device_file_and_not_by_its_index() -> None:
    found = idleness(answer(gpu(0, A, minor=1), gpu(1, B, minor=0)), pods("gpu-1", resource="gpu.nvidia.com"))
    assert idle(found) == [B]
    found = idleness(TWO, pods("gpu-1-mig-1g10gb-19-0", resource="gpu.nvidia.com"))
    assert idle(found) == [A]


@pytest.mark.parametrize("device", ["GPU-cccc", "MIG-dddd", "gpu-7", "imagined"])
def test_a_gpu_that_cannot_be_told_may_be_any(device: str) -> None:
    found = idleness(TWO, pods(device))
    assert idle(found) == []
    assert f"may be the {device}" in found.left_out[0]


def test_devices_of_other_kinds_make_no_gpu_busy() -> None:
    assert idle(idleness(TWO, pods("efa-0", resource="vpc.amazonaws.com/efa"))) == [A, B]


def test_work_goes_to_the_mig_devices_of_a_gpu() -> None:
    found = idleness(answer(gpu(0, A, mig_enabled=True, mig_uuids=("MIG-1", "MIG-2"))), PodUse())
    assert found.idle[0].visible == ("MIG-1", "MIG-2")


def test_a_pod_on_one_mig_device_makes_the_gpu_busy() -> None:
    sliced = answer(gpu(0, A, mig_enabled=True, mig_uuids=("MIG-1", "MIG-2")), gpu(1, B))
    assert idle(idleness(sliced, pods("MIG-2", resource="nvidia.com/mig-3g.40gb"))) == [B]


def test_a_gpu_in_mig_mode_without_instances_is_left_out() -> None:
    found = idleness(answer(gpu(0, A, mig_enabled=True, mig_uuids=())), PodUse())
    assert found == Idleness(left_out=("GPU 0 is in MIG mode without instances",))


@pytest.mark.parametrize(
    ("reading", "use"),
    [
        (NvmlAnswer(silent="no answer in time"), PodUse()),
        (NvmlAnswer(failed=15), PodUse()),
        (TWO, PodUse(kubelet=True, silent="no answer in time")),
        (answer(gpu(0, A, process_count=None)), PodUse()),
        (answer(gpu(0, "")), PodUse()),
        (answer(gpu(0, A, mig_enabled=True)), PodUse()),
    ],
)
def test_where_nobody_tells_no_gpu_is_idle(reading: NvmlAnswer, use: PodUse) -> None:
    found = idleness(reading, use)
    assert found.idle == ()
    assert len(found.unjudged) == 1
