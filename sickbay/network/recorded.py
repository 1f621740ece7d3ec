"""Judges recorded outputs of the network's tools: listings of sysfs, ibstat, ibstatus, rdma link, and others.

Called by `sickbay check --from ib-sysfs=FILE`. A recording has one moment and no settings: ports are judged by their
peers, and counters, which are totals since the boot, not at all.
"""

import re
from collections.abc import Callable
from typing import Final

from sickbay.checks import CheckOutcome, healthy, judged, unknown
from sickbay.network.fabric import FabricExpectation, FabricJudgement, judge_fabric
from sickbay.network.listings import Listing, ibstat, ibstatus, rdma_link, sysfs_dump
from sickbay.network.tool_outputs import judge_ethtool, judge_fi_info, judge_link_log
from sickbay.recorded.model import Recorded, RecordedContext

_PROMPT: Final = re.compile(r"^\s*(?:[\w.@:~-]*[$#]) ")
"""The line on which somebody typed the command."""
_LISTINGS: Final[tuple[Callable[[str], Listing | None], ...]] = (ibstat, ibstatus, sysfs_dump, rdma_link)
_OUTPUTS: Final[tuple[Callable[[str], CheckOutcome | None], ...]] = (judge_fi_info, judge_ethtool, judge_link_log)


def judge_ib_sysfs(recorded: Recorded, context: RecordedContext) -> CheckOutcome:  # noqa: ARG001 -- a reader's shape
    """What a recorded output of the network's tools says. Raises nothing."""
    text = "\n".join(line for line in recorded.text.splitlines() if not _PROMPT.match(line))
    ended = f"the command ended with exit code {recorded.exit_code}" if recorded.exit_code else ""
    for read in _LISTINGS:
        listing = read(text)
        if listing is not None:
            return _of_listing(listing, ended)
    for judge in _OUTPUTS:
        outcome = judge(text)
        if outcome is not None:
            return _doubted(outcome, ended)
    return unknown("no output of a network tool can be read in it" + (f"; {ended}" if ended else ""))


def _of_listing(listing: Listing, ended: str) -> CheckOutcome:
    judgement = judge_fabric(listing.ports, FabricExpectation())
    stopped = f"the listing has a line that is no part of it: {listing.troubles[0]}" if listing.troubles else ""
    unjudged = "; ".join(filter(None, (stopped, ended, judgement.unjudged, _nothing(judgement))))
    outcome = judged(judgement.faults, unjudged)
    return outcome if outcome.why or outcome.faults else healthy(f"{len(judgement.ports)} ports are up")


def _nothing(judgement: FabricJudgement) -> str:
    return "" if judgement.ports else "it lists no port of a compute fabric that is up"


def _doubted(outcome: CheckOutcome, ended: str) -> CheckOutcome:
    """The outcome, which is no health if its tool ended with an error."""
    return judged((), f"{outcome.why}; {ended}") if ended and not outcome.faults and outcome.why else outcome
