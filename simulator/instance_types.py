"""The instance types that the simulated cloud sells, and how many GPUs each has.

Used by the cloud to make machines, by Karpenter and the scheduler to plan for nodes that do not exist yet, and by the
simulated host for its GPU model. Figures are AWS's own for these types.
"""

from sickbay.model import Frozen


class InstanceType(Frozen):
    """One size of machine."""

    name: str
    gpus: int
    cpus: int
    memory_gib: int


INSTANCE_TYPES = {
    kind.name: kind
    for kind in (
        InstanceType(name="p5.48xlarge", gpus=8, cpus=192, memory_gib=2048),
        InstanceType(name="p6e-gb200.36xlarge", gpus=4, cpus=144, memory_gib=960),
        InstanceType(name="p6-b200.48xlarge", gpus=8, cpus=192, memory_gib=2048),
        InstanceType(name="p5en.48xlarge", gpus=8, cpus=192, memory_gib=2048),
        InstanceType(name="p5e.48xlarge", gpus=8, cpus=192, memory_gib=2048),
        InstanceType(name="p4d.24xlarge", gpus=8, cpus=96, memory_gib=1152),
        InstanceType(name="p3dn.24xlarge", gpus=8, cpus=96, memory_gib=768),
        # A server of somebody's own: EC2 has no such GPUs.
        InstanceType(name="own.a100-pcie", gpus=2, cpus=32, memory_gib=256),
        InstanceType(name="g5.xlarge", gpus=1, cpus=4, memory_gib=16),
    )
}


def instance_type(name: str) -> InstanceType:
    """The type of this name. Raises ValueError, naming those there are."""
    try:
        return INSTANCE_TYPES[name]
    except KeyError:
        raise ValueError(f"instance type {name!r} is not simulated: use one of {', '.join(INSTANCE_TYPES)}") from None
