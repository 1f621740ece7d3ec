"""Rules on ends that nobody is to blame for, and on those that tell nothing (rows 1, 2, 5, 8, 9, 29, 30)."""

from typing import Final

from sickbay.training.evidence import Ending
from sickbay.training.failures.case import Case, verdict
from sickbay.training.failures.patterns import Kind
from sickbay.training.verdicts import BudgetKind, FailureAction, FailureClass, FailureVerdict

RESTART: Final = FailureAction.RESTART
_TAKEN: Final = {
    "pod-preempted": "the scheduler needed the room for something more important",
    "pod-evicted-by-api": "somebody drained the node",
    "pod-deleted-by-taint": "the node got a taint that the pod does not bear",
    "node-shutdown": "the node was shut down",
    "spot-interruption": "the cloud took the instance back",
    "slurm-preempted": "the scheduler took the nodes back",
    "device-changed": "the node came back with another GPU than the pod was bound to",
}
_DEATHS: Final = ("signal-segv", "signal-abort", "signal-kill", "signal-bus", "cuda-unknown", "actor-died")
_FAILING: Final = {
    Kind.HARDWARE,
    Kind.PLATFORM,
    Kind.MEMORY,
    Kind.CONFIG,
    Kind.APPLICATION,
    Kind.AMBIGUOUS,
    Kind.CHECKPOINT,
}


def ordered(case: Case) -> FailureVerdict | None:
    """Rows 1, 2 and 29: a person, a deadline or the launcher ended it."""
    if case.evidence.ending is Ending.CANCELLED:
        return verdict(FailureClass.POLICY, FailureAction.STOP, "row-01-cancelled", "it was cancelled", case=case)
    if case.evidence.ending is Ending.DEADLINE:
        return verdict(FailureClass.POLICY, FailureAction.STOP, "row-02-time-limit", "its time was over", case=case)
    if shown := case.all("interrupted"):
        return verdict(
            FailureClass.POLICY,
            FailureAction.STOP,
            "row-01-interrupted",
            "somebody interrupted it",
            shown,
            case=case,
            culprits=[],
        )
    if shown := case.all("time-limit"):
        kubernetes = any("eadline" in each.sign.line for each in shown)
        action = FailureAction.STOP if kubernetes else RESTART
        return verdict(
            FailureClass.POLICY,
            action,
            "row-02-time-limit",
            "its time limit was reached",
            shown,
            case=case,
            culprits=[],
        )
    if (shown := case.all("exit-duration")) and not case.kinds() & _FAILING:
        return verdict(
            FailureClass.POLICY,
            RESTART,
            "row-08-planned-exit",
            "it ended itself as it was told to, to be started again",
            shown,
            case=case,
            culprits=[],
        )
    if shown := case.all("launcher-no-restart"):
        return verdict(
            FailureClass.APPLICATION,
            FailureAction.STOP,
            "row-29-no-restart",
            "its launcher says that no restart helps",
            shown,
            case=case,
            culprits=[],
        )
    return None


def disrupted(case: Case) -> FailureVerdict | None:
    """Row 5: it was preempted, drained or shut down."""
    if shown := case.all("queue-preempted"):
        return verdict(
            FailureClass.DISRUPTION,
            FailureAction.WAIT,
            "row-05-queue",
            "its queue took the nodes back, and requeued it",
            shown,
            case=case,
            culprits=[],
        )
    if case.evidence.ending is Ending.EVICTED:
        return verdict(FailureClass.DISRUPTION, FailureAction.WAIT, "row-05-queue", "its queue suspended it", case=case)
    shown = [each for code in _TAKEN for each in case.all(code)]
    if not shown:
        return None
    nodes = [each.node for each in shown if each.node and each.code == "device-changed"]
    return verdict(
        FailureClass.DISRUPTION, RESTART, "row-05-disrupted", _TAKEN[shown[0].code], shown, case=case, culprits=nodes
    )


def sudden_death(case: Case) -> FailureVerdict | None:
    """Row 30: a signal, or a word that leaves everything open."""
    shown = case.all(*_DEATHS)
    codes = {rank.exit_code or 0 for rank in case.evidence.ranks} & {134, 135, 136, 137, 139}
    if not shown and not codes:
        return None
    words = f"it died with exit code {', '.join(map(str, sorted(codes)))}" if codes else "a process died"
    return verdict(
        FailureClass.AMBIGUOUS, RESTART, "row-30-died", f"{words}, and nothing tells why", shown, case=case, culprits=[]
    )


def all_alike(case: Case) -> FailureVerdict | None:
    """Ranks that all ended in the same way, with no word of why: the first of a tie is no culprit."""
    ended = [rank for rank in case.evidence.ranks if rank.exit_code not in (None, 0)]
    if not ended:
        return None
    lines = [f"rank {rank.rank}: exit code {rank.exit_code}" for rank in ended[:4]]
    reason = f"{len(ended)} rank(s) ended with a failure and no word of why: their logs are needed"
    return verdict(
        FailureClass.AMBIGUOUS, FailureAction.FIND_ROOT, "row-21-tie", reason, case=case, culprits=[], lines=lines
    )


def ended_early(case: Case) -> FailureVerdict | None:
    """Rows 8 and 9: exit code 0, or a normal teardown, and the target is not reached."""
    if case.evidence.ending is Ending.ENDED:
        return verdict(
            FailureClass.AMBIGUOUS,
            RESTART,
            "row-08-ended-before-target",
            "every pod ended with exit code 0, and the target is not reached",
            case=case,
        )
    shown = case.all("normal-teardown", "main-ended")
    if not shown or case.kinds():
        return None
    return verdict(
        FailureClass.AMBIGUOUS,
        FailureAction.STOP,
        "row-08-normal-end",
        "it ended by itself, and tears down as usual: check the target before it counts as done",
        shown,
        case=case,
        culprits=[],
        budget=BudgetKind.UNEXPLAINED,
    )


def nothing_known(case: Case) -> FailureVerdict:
    """Nothing decides. What did not answer is unknown, not absent: no exclusion."""
    if case.evidence.missing:
        return verdict(
            FailureClass.AMBIGUOUS,
            RESTART,
            "unknown-evidence",
            f"evidence is missing: {case.evidence.missing[0]}",
            case=case,
            culprits=[],
        )
    return verdict(
        FailureClass.AMBIGUOUS, RESTART, "row-30-nothing-known", "nothing tells why it ended", case=case, culprits=[]
    )
