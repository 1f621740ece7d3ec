"""What a node offers of its GPUs by way of the kubelet, and what of that may be counted.

Used by `sickbay.node_faults` and by the reader of recordings. With time slicing and with MIG the kubelet's numbers are
not numbers of GPUs: 16 may be four that are shared, and 0 of `nvidia.com/gpu` is right where all are cut into MIG
instances. Only whole GPUs may be compared with what the driver shows.
"""

from typing import Final

from sickbay.kube_objects import Node

GPU: Final = "nvidia.com/gpu"
EFA: Final = "vpc.amazonaws.com/efa"
LABEL_COUNT: Final = "nvidia.com/gpu.count"
"""GPUs that GPU feature discovery saw through NVML when it last ran."""

_OTHER_ACCELERATORS: Final = frozenset({"amd.com/gpu", "aws.amazon.com/neuron"})
_LABEL_REPLICAS: Final = "nvidia.com/gpu.replicas"
_LABEL_PRODUCT: Final = "nvidia.com/gpu.product"
_LABEL_MIG_STRATEGY: Final = "nvidia.com/mig.strategy"
_LABEL_MIG_CONFIG: Final = "nvidia.com/mig.config"
_SHARED_PRODUCTS: Final = ("-SHARED", "-MIG-")
"""What GPU feature discovery adds to the name of a GPU that is shared or cut."""


def count(resources: dict[str, str], name: str) -> int | None:
    """How many of a resource a list has; None if it does not name it, or not as a number."""
    text = resources.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else None


def accelerators(resources: dict[str, str]) -> tuple[str, ...]:
    """Names of the accelerator resources in a list, whole, shared or cut, also where their count is 0."""
    return tuple(
        name
        for name in resources
        if name.removesuffix(".shared") == GPU or name.startswith("nvidia.com/mig-") or name in _OTHER_ACCELERATORS
    )


def counts_whole_gpus(node: Node) -> bool:
    """Whether the node's `nvidia.com/gpu` counts GPUs: neither shared in time nor cut by MIG."""
    labels, offered = node.metadata.labels, node.status.capacity
    if GPU not in offered:
        return False
    if any(count(offered, name) for name in accelerators(offered) if name != GPU):
        return False
    replicas = labels.get(_LABEL_REPLICAS, "")
    shared = replicas.isdecimal() and int(replicas) > 1
    named = any(mark in labels.get(_LABEL_PRODUCT, "") for mark in _SHARED_PRODUCTS)
    cut = labels.get(_LABEL_MIG_STRATEGY) == "single" or labels.get(_LABEL_MIG_CONFIG, "all-disabled") != "all-disabled"
    return not (shared or named or cut)


def withheld(node: Node) -> tuple[str, ...]:
    """Accelerator resources of which less is allocatable than there is, each in words.

    The device plugin takes a device that it calls unhealthy out of the allocatable ones and leaves it in the capacity;
    so this also holds for GPUs that are shared or cut.
    """
    found = []
    for name in accelerators(node.status.capacity):
        there, offered = count(node.status.capacity, name), count(node.status.allocatable, name)
        if there is not None and offered is not None and offered < there:
            found.append(f"{offered} of {there} {name} are allocatable")
    return tuple(found)


def unpaired(node: Node) -> tuple[str, ...]:
    """Accelerator resources that stand on one side only, which no kubelet writes: the text was cut."""
    there, offered = set(accelerators(node.status.capacity)), set(accelerators(node.status.allocatable))
    return tuple(sorted(there ^ offered))


def short_of(node: Node, devices: int) -> str:
    """In what way fewer whole GPUs are allocatable than these devices, in words; empty if not, or if not countable."""
    offered = count(node.status.allocatable, GPU) or 0
    if not counts_whole_gpus(node) or offered >= devices:
        return ""
    return f"{offered} of {devices} GPUs are allocatable"
