"""How many GPUs and EFA devices a machine of an EC2 instance type has at most.

Used by the checks of GPUs and EFA on a node, and by the controller where EC2 itself cannot be asked. GPUs come with the
type; EFA devices are attached at launch, and a launch template may attach fewer: for them the table is a maximum, and
never by itself a reason for a fault. The figures are those of Karpenter's list of instance types, which is made from
EC2's own answers (facts: detection, 4).
"""

from collections.abc import Mapping
from typing import Final

from sickbay.model import Frozen


class InstanceLimits(Frozen):
    """What a machine of one type has."""

    gpus: int | None
    """None where the type has a fraction of a GPU, which the driver may count as one or none."""
    max_efa: int | None
    """None where it is not known."""
    nvswitches: bool = False
    """Whether its GPUs are joined by NVSwitches, so that it needs a running fabric manager."""


def _joined(gpus: int, max_efa: int) -> InstanceLimits:
    return InstanceLimits(gpus=gpus, max_efa=max_efa, nvswitches=True)


def _apart(gpus: int, max_efa: int) -> InstanceLimits:
    return InstanceLimits(gpus=gpus, max_efa=max_efa)


def _sizes(family: str, sizes: Mapping[str, tuple[int, int]]) -> dict[str, InstanceLimits]:
    return {f"{family}.{size}": _apart(gpus, max_efa) for size, (gpus, max_efa) in sizes.items()}


_SMALL: Final = {"xlarge": (1, 0), "2xlarge": (1, 0), "4xlarge": (1, 0)}
_G5: Final = {
    **_SMALL,
    "8xlarge": (1, 1),
    "12xlarge": (4, 1),
    "16xlarge": (1, 1),
    "24xlarge": (4, 1),
    "48xlarge": (8, 1),
}

LIMITS: Final[Mapping[str, InstanceLimits]] = {
    # The V100s of a p3dn are joined by NVLinks without switches.
    "p3dn.24xlarge": _apart(8, 1),
    "p4d.24xlarge": _joined(8, 4),
    "p4de.24xlarge": _joined(8, 4),
    "p5.4xlarge": _apart(1, 1),
    "p5.48xlarge": _joined(8, 32),
    "p5e.48xlarge": _joined(8, 32),
    "p5en.48xlarge": _joined(8, 16),
    "p6-b200.48xlarge": _joined(8, 8),
    "p6-b300.48xlarge": _joined(8, 16),
    # Its switches are in trays of their own, with their own fabric manager.
    "p6e-gb200.36xlarge": InstanceLimits(gpus=4, max_efa=None),
    **_sizes("g4dn", {**_SMALL, "8xlarge": (1, 1), "12xlarge": (4, 1), "16xlarge": (1, 1), "metal": (8, 1)}),
    **_sizes("g5", _G5),
    **_sizes("g6", _G5),
    **_sizes("g6e", {**_G5, "24xlarge": (4, 2), "48xlarge": (8, 4)}),
    **_sizes("gr6", {"4xlarge": (1, 0), "8xlarge": (1, 1)}),
    **_sizes("g7", {"48xlarge": (8, 2)}),
    **_sizes("g7e", {"8xlarge": (1, 1), "12xlarge": (2, 1), "24xlarge": (4, 2), "48xlarge": (8, 4)}),
    **{f"g6f.{size}": InstanceLimits(gpus=None, max_efa=0) for size in ("large", "xlarge", "2xlarge", "4xlarge")},
    "trn1.2xlarge": _apart(0, 0),
    "trn1.32xlarge": _apart(0, 8),
    "trn1n.32xlarge": _apart(0, 16),
    "trn2.48xlarge": _apart(0, 16),
}


def limits_of(instance_type: str) -> InstanceLimits | None:
    """What a machine of this type has; None for a type that is not in the table."""
    return LIMITS.get(instance_type)
