"""What a recording shows of one node, whatever printed it; a node that is half shown must not pass for a whole one."""

from sickbay.kube_objects import Condition, Node
from sickbay.model import Frozen


class DescribedNode(Frozen):
    """One node as a recording shows it."""

    node: Node
    shows_conditions: bool = False
    shows_resources: bool = False
    gaps: tuple[str, ...] = ()
    """What of it could not be read, or was cut off, in words."""

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Its conditions, as far as they are shown."""
        return self.node.status.conditions

    @property
    def name(self) -> str:
        """Its name, or words for one that has none."""
        return self.node.metadata.name or "the node"


class UnreadableError(Exception):
    """The text describes no node that can be read; the message says why."""
