"""Links that come and go: drops, which last, and flaps, which return.

Called by the InfiniBand check for each port of the compute fabric. The rules are gpud's (facts: detection, 4), with its
numbers: a drop is a port that is down for four minutes while its own counter of downs does not move; a flap is a port
that was down three times within twelve hours, each time for 25 seconds or more, and came back.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from sickbay.checks import CheckMoment
from sickbay.faults import Fault
from sickbay.model import Frozen
from sickbay.network.fabric import port_fault
from sickbay.network.ports import Port

DROP_AFTER: Final = timedelta(minutes=4)
DROP_TOLD_FOR: Final = timedelta(minutes=10)
"""After the port is back."""
FLAP_DOWN_FOR: Final = timedelta(seconds=25)
FLAPS: Final = 3
FLAP_WINDOW: Final = timedelta(hours=12)


class LinkMemory(Frozen):
    """What is remembered of one port in one boot."""

    down_since: datetime | None = None
    """First look at which it was down, of those without an up between."""
    downs_before: int | None = None
    """Its counter `link_downed` at that look."""
    dropped_at: datetime | None = None
    """Last look at which it was dropped."""
    flaps: tuple[datetime, ...] = ()
    """When it came back, within the window."""


def follow_link(
    port: Port, downs: int | None, memory: LinkMemory, moment: CheckMoment
) -> tuple[tuple[Fault, ...], LinkMemory]:
    """The faults of a port by what it did since earlier looks, and what to remember.

    `downs` is its counter `link_downed`; without one a drop cannot be told from a link that flaps.
    """
    memory = _after(port, downs, memory, moment.now)
    found = []
    if memory.dropped_at is not None:
        words = f"down for {DROP_AFTER.total_seconds() / 60:.0f} minutes or more without a count of it"
        found.append(port_fault("nic-port-dropped", port, words, moment))
    if len(memory.flaps) >= FLAPS:
        hours = FLAP_WINDOW.total_seconds() / 3600
        words = f"down and up again {len(memory.flaps)} times within {hours:.0f} hours"
        found.append(port_fault("nic-flapping", port, words, moment))
    return tuple(found), memory


def _after(port: Port, downs: int | None, memory: LinkMemory, now: datetime) -> LinkMemory:
    flaps = tuple(at for at in memory.flaps if now - at < FLAP_WINDOW)
    dropped_at = memory.dropped_at
    since, before = memory.down_since, memory.downs_before
    if port.up:
        if since is not None and now - since >= FLAP_DOWN_FOR:
            flaps = (*flaps, now)
        since, before = None, None
    elif since is None:
        since, before = now, downs
    elif now - since >= DROP_AFTER and downs is not None and downs == before:
        dropped_at = now
    if dropped_at is not None and now - dropped_at > DROP_TOLD_FOR:
        dropped_at = None
    return LinkMemory(down_since=since, downs_before=before, dropped_at=dropped_at, flaps=flaps)


class LinkMemories(Frozen):
    """The ports' memories, by `device/port`."""

    links: Mapping[str, LinkMemory] = {}
    seen_up: frozenset[str] = frozenset()
    """Ports that were up at any look of this boot."""
