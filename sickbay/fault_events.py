"""Which news of a node's faults is worth an Event, and what it says.

Called by the node agent's publisher. Events are for people who look with kubectl; nothing of ours reads them.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from sickbay.catalogue import lookup
from sickbay.faults import Fault, FaultClass, Rung
from sickbay.model import Frozen
from sickbay.node_conditions import makes_bad

_EVIDENCE_CHARACTERS: Final = 240


class News(StrEnum):
    """What became of a fault; the reason of the Event, in CamelCase as Kubernetes asks."""

    OPENED = "FaultOpened"
    ROSE = "FaultRose"
    CLOSED = "FaultClosed"


class FaultNews(Frozen):
    """One fault that changed."""

    news: News
    fault: Fault

    @property
    def warning(self) -> bool:
        """Whether it is bad news for the node."""
        return self.news is not News.CLOSED and makes_bad(self.fault)

    @property
    def message(self) -> str:
        """One line for people."""
        fault = self.fault
        where = f"{fault.code} on {fault.component.kind} {fault.component.id}"
        if self.news is News.CLOSED:
            return f"{where} is over"
        asks = "" if fault.rung is Rung.NONE else f"; asks for {fault.rung}"
        evidence = f": {fault.evidence[0][:_EVIDENCE_CHARACTERS]}" if fault.evidence else ""
        return f"{where} ({lookup(fault.code).meaning}){asks}{evidence}"


def fault_news(before: Iterable[Fault], after: Iterable[Fault]) -> tuple[FaultNews, ...]:
    """What changed from one report to the next: faults that are new, that ask for more, or that are gone."""
    earlier = {fault.identity: fault for fault in before if _is_told(fault)}
    later = {fault.identity: fault for fault in after if _is_told(fault)}
    found = []
    for identity, fault in later.items():
        known = earlier.get(identity)
        if known is None:
            found.append(FaultNews(news=News.OPENED, fault=fault))
        elif fault.rung.strength > known.rung.strength:
            found.append(FaultNews(news=News.ROSE, fault=fault))
    gone = [FaultNews(news=News.CLOSED, fault=fault) for identity, fault in earlier.items() if identity not in later]
    return (*found, *gone)


def _is_told(fault: Fault) -> bool:
    """A check that had no answer once is no news; one that goes on so is."""
    return fault.rung is not Rung.NONE or fault.fault_class is not FaultClass.MONITOR_UNAVAILABLE
