"""Answers of NVML for tests: whole machines of well GPUs, of which a test changes what it is about."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sickbay.faults import Fault
from sickbay.gpu_readings import (
    EccCounts,
    Expectation,
    FabricAnswer,
    GpuAnswer,
    GpuHistory,
    LinkAnswer,
    NvmlAnswer,
    gpu_faults,
    remember,
)

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
CLUSTER = "0123" * 8
CLEAN = EccCounts(
    corrected=0, uncorrected=0, dram_corrected=0, dram_uncorrected=0, sram_corrected=0, sram_uncorrected=0
)
LATER = timedelta(hours=1)

H100, H200, B200, GB200 = "NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA B200", "NVIDIA GB200"
A100, A100_PCIE, A10G, V100 = (
    "NVIDIA A100-SXM4-40GB",
    "NVIDIA A100 80GB PCIe",
    "NVIDIA A10G",
    "Tesla V100-SXM2-32GB",
)


def pci(index: int) -> str:
    """The address of one GPU."""
    return f"0000:{0x50 + index:02x}:00"


def links(count: int, down: tuple[int, ...] = (), **counters: int) -> tuple[LinkAnswer, ...]:
    """NVLinks of one GPU; counters are those of the first one that is up."""
    told = [LinkAnswer(index=index, active=index not in down) for index in range(count)]
    first = next((link.index for link in told if link.active), None)
    return tuple(link.model_copy(update=counters) if link.index == first else link for link in told)


def gpu(index: int = 0, name: str = H100, **more: Any) -> GpuAnswer:
    """A well GPU, but for what is given."""
    whole: dict[str, Any] = {
        "index": index,
        "uuid": f"GPU-{index}",
        "pci": f"0000{pci(index).upper()}.0",
        "name": name,
        "recovery_action": 0,
        "ecc_enabled": True,
        "ecc_pending": True,
        "ecc_volatile": CLEAN,
        "ecc_aggregate": CLEAN,
        "remap_pending": False,
        "remap_failed": False,
        "process_count": 0,
    }
    return GpuAnswer.model_validate(whole | more)


def machine(*gpus: GpuAnswer, **more: Any) -> NvmlAnswer:
    """What these GPUs answer together."""
    return NvmlAnswer.model_validate({"count": len(gpus), "gpus": gpus, "driver_version": "580.95.05"} | more)


def board(count: int = 8, name: str = H100, link_count: int = 18, **sick: Any) -> NvmlAnswer:
    """A board of GPUs that NVSwitches join; `sick` changes the third one."""
    common: dict[str, Any] = {
        "name": name,
        "links": links(link_count),
        "fabric": FabricAnswer(state=3, status=0, cluster_uuid=CLUSTER),
    }
    return machine(*(gpu(index, **(common | (sick if index == 2 else {}))) for index in range(count)))


def expected(since_boot: timedelta | None = LATER, **more: Any) -> Expectation:
    """What is known of the machine."""
    return Expectation.model_validate({"boot_id": "boot-1", "seen": NOW, "since_boot": since_boot} | more)


def told(answer: NvmlAnswer, history: GpuHistory | None = None, **more: Any) -> list[tuple[str, str]]:
    """Codes and components of the faults that an answer shows."""
    found: tuple[Fault, ...] = gpu_faults(answer, expected(**more), history or GpuHistory())
    return [(fault.code, fault.component.id) for fault in found]


def after(*answers: NvmlAnswer, apart: timedelta = timedelta(seconds=30)) -> GpuHistory:
    """The history of these passes, the last of them now."""
    history = GpuHistory()
    for number, answer in enumerate(answers):
        history = remember(history, answer, NOW - apart * (len(answers) - 1 - number))
    return history
