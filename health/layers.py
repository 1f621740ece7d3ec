"""Every check of the node agent and of `sickbay check`, made from the settings; the order is that of the printed table.

A new check is a module of its own in this room and one row here.
"""

from health.check import Check
from health.settings import NodeSettings


def checks(settings: NodeSettings) -> tuple[Check, ...]:  # noqa: ARG001 - the first row uses it
    """All checks, whether or not they apply to this machine."""
    return ()
