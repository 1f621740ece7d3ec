"""Which nodes are suspected although no detector finds anything: those where one job after another fails.

Kept by `workflows.node_suspicions`, told by every training job (`handshake.HurtReport`). A suspicion is no verdict: its
incident blocks new work and lets the active checks decide (design, 3.2). Numbers: facts, training 4 (three different
jobs in 28 days) and 1.3 (lemon nodes). A failure that an application or known hardware explains suspects nobody.
"""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from pydantic import AwareDatetime

from sickbay.catalogue import fault_of
from sickbay.checks import CheckLayer, CheckResult
from sickbay.faults import Component, ComponentKind, Fault
from sickbay.model import Frozen
from sickbay.nodes import HostProbe, NodeRef
from sickbay.training.handshake import HurtReport
from sickbay.training.verdicts import NodeBlame

SUSPECT: Final = "suspect-node"
SLOW_RANK: Final = "slow-rank"
JOB_HARDWARE: Final = "job-hardware-error"
CODES: Final = frozenset({SUSPECT, SLOW_RANK, JOB_HARDWARE})
"""Codes that jobs alone tell. No agent reports them, so that one does not see them says nothing."""

WINDOW: Final = timedelta(days=28)
JOBS: Final = 3
"""Different jobs with the same failure on one machine; one job's failures suspect nobody, however many."""
DISTINCT: Final = 2
"""How many times as many jobs as on any other machine: a failure that is everywhere follows the image, not the node."""
PER_DAY: Final = 2
"""New suspects in a day: more of them at once have a cause in common (a switch, an image, our own rule)."""
KEPT: Final = 2_000
"""Reports kept, the newest: the state of a workflow must stay small."""


class Suspect(Frozen):
    """A machine that is suspected, and why."""

    node: NodeRef
    fingerprint: str
    jobs: tuple[str, ...]
    since: AwareDatetime


class Suspicions(Frozen):
    """Everything that the cluster's jobs have told, as far as it still counts."""

    reports: tuple[HurtReport, ...] = ()
    named: tuple[Suspect, ...] = ()
    """Whose incident was opened; each is named once for what is known of it."""


def heard(known: Suspicions, report: HurtReport, now: datetime) -> Suspicions:
    """With one more report. The same attempt told again changes nothing; what is older than the window is forgotten."""
    others = [one for one in known.reports if _key(one) != _key(report) and one.at > now - WINDOW]
    named = tuple(suspect for suspect in known.named if suspect.since > now - WINDOW)
    if report.explained or report.at <= now - WINDOW:
        return Suspicions(reports=tuple(others), named=named)
    return Suspicions(reports=(*others, report)[-KEPT:], named=named)


def new_suspects(known: Suspicions, now: datetime) -> tuple[Suspect, ...]:
    """Machines to be named now: within the day's cap, and not named already for what is known."""
    today = sum(suspect.since > now - timedelta(days=1) for suspect in known.named)
    found = [suspect for suspect in _suspects(known.reports, now) if not _is_named(suspect, known.named)]
    return tuple(found[: max(0, PER_DAY - today)])


def named(known: Suspicions, suspects: Iterable[Suspect]) -> Suspicions:
    """After the incidents of these suspects were opened."""
    return known.model_copy(update={"named": (*known.named, *suspects)})


def fault_of_suspect(suspect: Suspect) -> Fault:
    """What the suspect's incident is told."""
    words = f"{len(suspect.jobs)} different jobs failed on it with {suspect.fingerprint!r}: {', '.join(suspect.jobs)}"
    component = Component(kind=ComponentKind.HOST, id=suspect.node.name)
    return fault_of(SUSPECT, component, seen=suspect.since, evidence=(words,))


def fault_of_blame(blame: NodeBlame, job_id: str, at: datetime) -> Fault:
    """What a node's incident is told of hardware evidence that a job found in its own logs.

    The job's word alone repairs nothing: the node's own detectors see the same trouble, or the active checks decide.
    """
    words = f"{job_id}: {blame.code or 'hardware'}: {blame.reason}"
    return fault_of(JOB_HARDWARE, Component(kind=ComponentKind.GPU, id="unknown"), seen=at, evidence=(words,))


def not_tried(probe: HostProbe) -> tuple[str, ...]:
    """Why a pass under load clears no suspicion, in words: every GPU must have been idle, and have been tried."""
    missing = [f"GPU {gpu.pci} is in use" for gpu in probe.gpus if gpu.process_count != 0]
    active = [check for check in probe.checks if check.layer is CheckLayer.ACTIVE]
    if not any(check.result is CheckResult.HEALTHY for check in active):
        missing.append("no active check has passed")
    return tuple(missing)


def only_suspicions(faults: Iterable[Fault]) -> bool:
    """Whether nothing but jobs' suspicions is open: then the active checks decide."""
    codes = {fault.code for fault in faults}
    return bool(codes) and codes <= CODES


def _suspects(reports: Iterable[HurtReport], now: datetime) -> list[Suspect]:
    by_failure: dict[str, dict[str, list[HurtReport]]] = defaultdict(lambda: defaultdict(list))
    for report in reports:
        by_failure[report.fingerprint][report.node.machine].append(report)
    found = []
    for fingerprint, machines in sorted(by_failure.items()):
        jobs = {machine: tuple(sorted({one.job_id for one in told})) for machine, told in machines.items()}
        for machine, told in sorted(machines.items()):
            most_elsewhere = max((len(names) for other, names in jobs.items() if other != machine), default=0)
            if len(jobs[machine]) >= max(JOBS, DISTINCT * most_elsewhere):
                newest = max(told, key=lambda report: report.at)
                found.append(Suspect(node=newest.node, fingerprint=fingerprint, jobs=jobs[machine], since=now))
    return found


def _is_named(suspect: Suspect, known: Iterable[Suspect]) -> bool:
    """Whether it was named for this failure with no fewer jobs than now."""
    return any(
        one.node.machine == suspect.node.machine
        and one.fingerprint == suspect.fingerprint
        and set(suspect.jobs) <= set(one.jobs)
        for one in known
    )


def _key(report: HurtReport) -> tuple[str, int, str]:
    return (report.job_id, report.attempt, report.node.machine)
