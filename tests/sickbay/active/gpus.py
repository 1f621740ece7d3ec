"""Idle GPUs and moments for the tests of the active rules."""

from datetime import UTC, datetime, timedelta

from sickbay.active.idleness import IdleGpu
from sickbay.checks import CheckMoment

NOW = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)
MOMENT = CheckMoment(now=NOW, boot_id="boot-1", boot_seen_at=NOW - timedelta(hours=1))
YOUNG = MOMENT.model_copy(update={"boot_seen_at": NOW - timedelta(minutes=1)})


def idle_gpu(index: int, product: str = "NVIDIA H100 80GB HBM3") -> IdleGpu:
    uuid = f"GPU-{index}"
    return IdleGpu(index=index, uuid=uuid, pci=f"0000:5{index}:00", product=product, visible=(uuid,))


def nobody_came() -> bool:
    """The GPU still is idle."""
    return True


def somebody_came() -> bool:
    """The GPU was taken into use."""
    return False
