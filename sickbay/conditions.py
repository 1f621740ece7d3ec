"""What the node agent publishes on its Node object, and the controller reads from it.

The annotation `names.ANNOTATION_FAULTS` holds one `FaultsAnnotation` as compact JSON; the conditions `names.CONDITIONS`
hold a word and a sentence for people and for other controllers. Written by the agent, read by `activities.nodes` and
by the controller's watch.
"""

from datetime import datetime

from sickbay.faults import Fault
from sickbay.model import Frozen


class Inventory(Frozen):
    """What the agent counts on its machine, for whoever knows how much there should be; None where it cannot count."""

    instance_type: str = ""
    gpus: int | None = None
    efa_devices: int | None = None


class FaultsAnnotation(Frozen):
    """The open faults of one node as its agent sees them."""

    boot_id: str
    reported_at: datetime
    faults: tuple[Fault, ...] = ()
    checks_unknown: tuple[str, ...] = ()
    """Checks that could not judge."""
    expected_gpus: int | None = None
    inventory: Inventory = Inventory()
    boot_seen_at: datetime | None = None
    """When the agent first ran in this boot; None from an agent that does not tell."""
