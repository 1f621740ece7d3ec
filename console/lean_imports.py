"""Keeps libraries out of the node agent's memory that its own libraries import only because they are there.

Called by `sickbay node` before it imports the agent, which runs on every GPU node within 96 MB
(`benchmarks/footprint.py`): Temporal's SDK takes in grpcio and structlog takes in rich where they are installed, 14 MB
for nothing. Both do without.
"""

import sys
from typing import Final

UNUSED: Final = ("grpc", "rich")
"""Used by other commands, and by children of the agent, which are processes of their own."""


def leave_out_unused() -> None:
    """From now on these libraries cannot be imported in this process, unless they already are."""
    for name in UNUSED:
        # As Python's documents have it, None in this table means that there is no such module.
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
