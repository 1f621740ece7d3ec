"""Devices that a machine has and does not offer, or should have and has not: counts of different witnesses compared.

Called by `sickbay.watch_faults`. Three counts are held against each other: what our agent sees on the host, what the
kubelet offers to pods, and what EC2 has attached. Each lags behind the others for minutes after a boot, so that a
difference only counts once it has lasted. A node that shares or cuts its GPUs has no count to compare
(`sickbay.other_agents.gpu_resources`), and one without a device plugin offers nothing on purpose.
"""

from typing import Final

from sickbay.cloud_words import CloudWords
from sickbay.conditions import Inventory
from sickbay.faults import ComponentKind
from sickbay.kube_objects import Node
from sickbay.model import Frozen
from sickbay.other_agents.gpu_resources import EFA, count, short_of, withheld

GPUS_OFFERED: Final = "gpu-allocatable-short"
EFA_OFFERED: Final = "efa-allocatable-short"
EFA_MISSING: Final = "efa-missing"
CODES: Final = frozenset({GPUS_OFFERED, EFA_OFFERED, EFA_MISSING})


class Shortage(Frozen):
    """One difference between two counts."""

    code: str
    kind: ComponentKind
    words: str


def shortages(node: Node, inventory: Inventory, cloud: CloudWords | None) -> tuple[Shortage, ...]:
    """What is short on a node by its agent's inventory, at this look. What nobody counted is not short."""
    found = []
    # What the plugin itself withholds is short too, whether or not the GPUs can be counted.
    gpus = [*withheld(node), short_of(node, inventory.gpus) if inventory.gpus else ""]
    if words := "; ".join(word for word in gpus if word):
        found.append(Shortage(code=GPUS_OFFERED, kind=ComponentKind.HOST, words=words))
    devices, offered = inventory.efa_devices, count(node.status.allocatable, EFA)
    if devices is not None and offered is not None and offered < devices:
        words = f"{offered} of {devices} {EFA} are allocatable"
        found.append(Shortage(code=EFA_OFFERED, kind=ComponentKind.HOST, words=words))
    attached = cloud.efa_attached if cloud else None
    if devices is not None and attached is not None and devices < attached:
        words = f"the host has {devices} EFA devices, and EC2 has attached {attached}"
        found.append(Shortage(code=EFA_MISSING, kind=ComponentKind.NIC, words=words))
    return tuple(found)
