"""What `fi_pingpong` of libfabric says when an EFA device talks to itself, and what it means.

Called by `health.loopback`. A pass needs the program's table with at least one line of results and a good end of both
sides; an end for want of the program's own needs (no provider, no such device for it) is unknown.
"""

import re
from collections.abc import Iterable
from typing import Final

from sickbay.catalogue import fault_of
from sickbay.checks import CheckMoment, CheckOutcome, judged
from sickbay.faults import Component, ComponentKind
from sickbay.model import Frozen

_RESULT: Final = re.compile(
    r"^\s*\d+[kmg]?\s+\d+[kmg]?\s+=?\d+[kmg]?\s+\d+(?:\.\d+)?[kmg]?\s+\d+\.\d+s?\s", re.MULTILINE
)
"""A line of the table: bytes, sent, acknowledged, total, time."""
_NO_PROVIDER: Final = re.compile(r"fi_getinfo\S*:.*|error while loading shared libraries.*")


class EfaTry(Frozen):
    """How the last try with one device ended."""

    device: str
    tries: int
    exit_code: int | None
    output: str = ""
    timed_out: bool = False
    not_started: str = ""

    @property
    def passed(self) -> bool:
        """Messages went round."""
        return self.exit_code == 0 and _RESULT.search(self.output) is not None


def judge_efa_loopback(tries: Iterable[EfaTry], moment: CheckMoment) -> CheckOutcome:
    """All devices' last tries as one outcome."""
    failed = [one for one in tries if not one.passed]
    unjudged = [f"{one.device}: {why}" for one in failed if (why := _not_its_own(one))]
    faults = tuple(
        fault_of(
            "efa-loopback-failed",
            Component(kind=ComponentKind.NIC, id=one.device),
            seen=moment.now,
            boot_id=moment.boot_id,
            evidence=(f"fi_pingpong of {one.device} with itself, {one.tries} tries: {_end(one)}",),
        )
        for one in failed
        if not _not_its_own(one)
    )
    return judged(faults, "; ".join(unjudged))


def _not_its_own(one: EfaTry) -> str:
    """Why a failure says nothing of the device, in words."""
    missing = _NO_PROVIDER.search(one.output)
    return one.not_started or (missing[0].strip() if missing else "")


def _end(one: EfaTry) -> str:
    if one.timed_out:
        return "no end"
    last = next((line.strip() for line in reversed(one.output.splitlines()) if line.strip()), "nothing said")
    return f"exit code {one.exit_code}, {last}"
