"""One fault as it adds up: counts, the first and last moment, the first lines, and the workloads that it hit."""

from sickbay.catalogue import lookup
from sickbay.faults import EVIDENCE_LINES_KEPT, WORKLOADS_KEPT, Component, Fault, Moment, Severity, Workload
from sickbay.kernel_log.lines import seconds_between
from sickbay.kernel_log.sighting import Judgement, Sighting

EVIDENCE_LENGTH_KEPT = 512
"""Characters kept of a line of evidence."""
BURST_SECONDS = 60.0
"""Processes of one name that are hit within this of each other are one job: a job has many processes, and one that is
started anew by its launcher takes longer to come to the GPU."""


class Entry:
    """A fault under way."""

    def __init__(self) -> None:
        self._count = 0
        self._first: Moment | None = None
        self._last: Moment | None = None
        self._evidence: list[str] = []
        self._workloads: dict[Workload, Moment | None] = {}
        """Each workload, with the moment at which one of its processes was last hit."""
        self._judgement: Judgement | None = None

    def add(self, sighting: Sighting) -> None:
        """Counts one sighting; a companion tells more of the same event and is not counted again."""
        moment = sighting.line.moment
        self._first = moment if self._first is None else self._first
        self._last = self._last if moment is None else moment
        if len(self._evidence) < EVIDENCE_LINES_KEPT:
            self._evidence.append(sighting.line.raw[:EVIDENCE_LENGTH_KEPT])
        if sighting.workload:
            self._hit(sighting.workload, moment)
        if not sighting.companion:
            self._count += sighting.line.repeats
        self._judge(sighting)

    def judgement_of(self, code: str) -> Judgement:
        """The worst that a line said, else what the catalogue says of the code."""
        return self._judgement or _by_catalogue(code)

    def fault(self, component: Component, code: str, boot_id: str | None) -> Fault:
        """The fault as it stands now."""
        judgement = self.judgement_of(code)
        return Fault(
            code=code,
            component=component,
            fault_class=judgement.fault_class,
            severity=judgement.severity,
            rung=judgement.rung,
            count=max(1, self._count),
            first_seen=self._first,
            last_seen=self._last,
            boot_id=boot_id,
            evidence=tuple(self._evidence),
            workloads=tuple(self._workloads),
        )

    def _judge(self, sighting: Sighting) -> None:
        if sighting.caused_by is not None:
            return  # the line is an Xid 45: it names the fault and says nothing of how bad that is
        if sighting.companion and sighting.judgement is None:
            return  # it says nothing of its own, and must not outweigh the words of the line that it goes with
        judgement = sighting.judgement or _by_catalogue(sighting.code)
        if judgement == self._judgement:
            return  # nearly all repeats end here
        if self._judgement is None or _badness(judgement) > _badness(self._judgement):
            self._judgement = judgement

    def _hit(self, workload: Workload, moment: Moment | None) -> None:
        for known, last in self._workloads.items():
            if known == workload or (known.name == workload.name and _is_burst(last, moment)):
                self._workloads[known] = moment
                return
        if len(self._workloads) < WORKLOADS_KEPT:
            self._workloads[workload] = moment


def _is_burst(earlier: Moment | None, later: Moment | None) -> bool:
    passed = seconds_between(earlier, later)
    return passed is not None and passed <= BURST_SECONDS


def _by_catalogue(code: str) -> Judgement:
    row = lookup(code)
    return Judgement(row.fault_class, row.rung, row.severity)


def _badness(judgement: Judgement) -> tuple[int, int]:
    return judgement.rung.strength, list(Severity).index(judgement.severity)
