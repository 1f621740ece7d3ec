"""A recorded output, and what may be known beside it.

A reader is a pure function `(Recorded, RecordedContext) -> CheckOutcome`, kept with the rules of its layer, e.g.
`sickbay.dcgm.recorded.judge_diag`; `sickbay.recorded.kinds` lists them. A reader never takes what it cannot read for
health: an empty, cut or foreign text is unknown, with the reason.
"""

from collections.abc import Callable
from enum import StrEnum

from sickbay.checks import CheckOutcome
from sickbay.gpu_readings.answer import KnownGpu
from sickbay.model import Frozen


class RecordedKind(StrEnum):
    """What printed it; the word before `=` on the command line."""

    DCGMI_DIAG = "dcgmi-diag"
    DCGMI_HEALTH = "dcgmi-health"
    """`dcgmi health -c`, and `dcgmi nvlink -e` or `-s`."""
    EXPORTER = "exporter"
    NVIDIA_SMI = "nvidia-smi"
    IB_SYSFS = "ib-sysfs"
    FABRIC_MANAGER = "fabric-manager"
    NODE_CONDITIONS = "node-conditions"


class Recorded(Frozen):
    """One recorded output."""

    kind: RecordedKind
    text: str
    exit_code: int | None = None
    """What the command ended with, where that is known."""
    path: str = ""


class RecordedContext(Frozen):
    """What the recordings given together tell of the machine, for outputs that do not tell it themselves."""

    products: tuple[str, ...] = ()
    """GPU names, e.g. `NVIDIA A10`."""
    expected_gpus: int | None = None
    """The most GPUs that one of the recordings counts."""
    gpus: tuple[KnownGpu, ...] = ()
    """GPUs whose UUID and PCI address one of them tells, so that one known by its UUID alone can be named."""
    fabric_in_progress: bool = False
    """Another recording shows GPUs whose fabric registration is not finished."""


Reader = Callable[[Recorded, RecordedContext], CheckOutcome]
