"""Checks of nodes in pairs, as DLRover prints them: a bad partner fails its peer too, so that only a second round, with
other partners, tells the two apart (facts: training, 5).

Used by `folder`.
"""

import re
from typing import Final

from sickbay.training.evidence import Sign, Source

_ROUND: Final = re.compile(r"[Rr]ound\s+(?P<round>\d+):?.*?status(?:es)?\s+(?:are|is)\s*\{(?P<states>[^}]{1,20000})\}")
_STATE: Final = re.compile(r"(?P<node>\d+):\s*(?P<well>True|False)")
ROUNDS: Final = 2


def check_signs(text: str) -> tuple[Sign, ...]:
    """One sign for each node that failed with every partner of the first two rounds."""
    rounds = {int(match["round"]): match for match in _ROUND.finditer(text)}
    if len(rounds) < ROUNDS:
        return ()
    first_two = [rounds[number] for number in sorted(rounds)[:ROUNDS]]
    failed = [
        {state["node"] for state in _STATE.finditer(one["states"]) if state["well"] == "False"} for one in first_two
    ]
    return tuple(
        Sign(
            code="node-check-failed",
            source=Source.LAUNCHER,
            line=f"node {node} failed the node check with two different partners",
            details={"node": f"worker-{node}"},
        )
        for node in sorted(failed[0] & failed[1], key=int)
    )
