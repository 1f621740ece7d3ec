"""Which nodes a job's next attempt keeps off, for how long, and when to stop keeping off at all.

Read by `decisions` and by the workflow when an incident or a person says so. No evidence, no exclusion (design, 3.2);
more exclusions than hardware causes mean a common cause, and then none is made (facts: training, 4).
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from sickbay.model import Frozen
from sickbay.training.attempts import Exclusion
from sickbay.training.job import TrainingSpec
from sickbay.training.verdicts import NodeBlame

SOFT_FOR: Final = timedelta(hours=6)
"""A node's own trouble, such as a full disk, passes or is seen to."""
BLAMED_FOR: Final = timedelta(hours=24)
HARDWARE_FOR: Final = timedelta(days=7)
"""Until its incident is over and says that it is well, at the latest."""
DAY: Final = timedelta(days=1)
KEPT: Final = 200
"""Past exclusions that a job remembers."""


class Exclusions(Frozen):
    """What is to be kept off, and what is not although it was blamed."""

    added: tuple[Exclusion, ...] = ()
    common_cause: str = ""
    """Why a blamed node is not kept off, in words; empty if all are."""


def live(exclusions: Iterable[Exclusion], now: datetime) -> tuple[Exclusion, ...]:
    """Those that hold now, the newest of each node alone."""
    newest = {each.node: each for each in exclusions if each.since <= now < each.until}
    return tuple(newest[node] for node in sorted(newest))


def of_blame(
    spec: TrainingSpec, known: tuple[Exclusion, ...], blamed: Iterable[NodeBlame], nodes: int, now: datetime
) -> Exclusions:
    """Exclusions for blamed nodes of a job of so many nodes, within its cap for a day.

    A node that is kept off already is only kept off for longer, which the cap does not count.
    """
    held = {each.node for each in live(known, now) if not each.soft}
    today = {each.node for each in known if not each.soft and each.since > now - DAY}
    cap = most_in_a_day(spec, nodes)
    added: list[Exclusion] = []
    refused: list[str] = []
    for blame in blamed:
        if not blame.soft and blame.node not in held | today and len(today) >= cap:
            refused.append(blame.node)
            continue
        added.append(
            Exclusion(
                node=blame.node,
                reason=blame.reason,
                since=now,
                until=now + _duration(blame),
                soft=blame.soft,
            )
        )
        if not blame.soft:
            today.add(blame.node)
    words = ""
    if refused:
        words = (
            f"{', '.join(refused)} not kept off: {cap} node(s) were within a day, "
            "and more than that have a cause in common (a switch, an image, the code)"
        )
    return Exclusions(added=tuple(added), common_cause=words)


def most_in_a_day(spec: TrainingSpec, nodes: int) -> int:
    """How many nodes may be excluded in a day for failures; at least two, which may break at once and independently
    (facts: training, 2.7, precedence)."""
    return max(2, int(spec.budgets.exclusions_per_day * nodes))


def added_to(known: tuple[Exclusion, ...], added: Iterable[Exclusion]) -> tuple[Exclusion, ...]:
    """All exclusions, the oldest forgotten beyond what is kept."""
    return (*known, *added)[-KEPT:]


def ended(known: tuple[Exclusion, ...], node: str, now: datetime) -> tuple[Exclusion, ...]:
    """With every exclusion of a node over now."""
    return tuple(
        each.model_copy(update={"until": now}) if each.node == node and each.until > now else each for each in known
    )


def yielding(exclusions: tuple[Exclusion, ...], room: int, wanted: int) -> tuple[Exclusion, ...]:
    """Without the soft ones where there is not room for the job beside them: it takes such a node rather than wait."""
    if room >= wanted:
        return exclusions
    return tuple(each for each in exclusions if not each.soft)


def _duration(blame: NodeBlame) -> timedelta:
    if blame.soft:
        return SOFT_FOR
    return HARDWARE_FOR if blame.hardware else BLAMED_FOR
