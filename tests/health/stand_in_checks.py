"""Checks that do as a test says."""

import threading
from collections.abc import Callable
from datetime import timedelta

from health.children import run_child
from sickbay.checks import (
    CheckAbout,
    CheckCost,
    CheckLayer,
    CheckMoment,
    CheckOutcome,
    HostFacts,
    healthy,
    unknown,
)
from sickbay.faults import ComponentKind

SOON = timedelta(seconds=20)
"""A deadline that is never meant to be reached."""

AT_ONCE = timedelta(milliseconds=300)
"""A deadline that is meant to be reached."""


def about(
    name: str,
    *,
    deadline: timedelta = SOON,
    every: timedelta = timedelta(seconds=0.02),
    layer: CheckLayer = CheckLayer.HOST,
    cost: CheckCost = CheckCost.CHEAP,
) -> CheckAbout:
    return CheckAbout(
        name=name,
        layer=layer,
        judges=(ComponentKind.HOST,),
        cost=cost,
        looks_at="what the test says",
        source="the test",
        every=every,
        deadline=deadline,
        fresh_for=timedelta(hours=1),
    )


class Told:
    """Answers with what the test put there, and counts."""

    def __init__(self, described: CheckAbout, answer: Callable[[CheckMoment], CheckOutcome] | None = None) -> None:
        self.about = described
        self.answer = answer or (lambda moment: healthy(memory=moment.memory + "."))
        self.moments: list[CheckMoment] = []
        self.inapplicable = ""

    def applies(self, host: HostFacts) -> str:
        return self.inapplicable

    def run(self, moment: CheckMoment) -> CheckOutcome:
        self.moments.append(moment)
        return self.answer(moment)


def asks_child(command: list[str], deadline: timedelta = AT_ONCE) -> Callable[[CheckMoment], CheckOutcome]:
    """An answer that a real child gives, or does not."""

    def answer(moment: CheckMoment) -> CheckOutcome:
        result = run_child(command, deadline)
        return healthy() if result.exit_code == 0 else unknown(result.words)

    return answer


class Hanging:
    """An answer that keeps its thread until the test lets it go, whatever the deadline."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.begun = 0

    def __call__(self, moment: CheckMoment) -> CheckOutcome:
        self.begun += 1
        self.released.wait(60)
        return healthy()
