"""What a node that computes wrong has spoilt: all since it joined the job, and only once that is confirmed."""

from datetime import timedelta

from sickbay.checkpoints.choice import choose
from sickbay.checkpoints.model import (
    Checkpoint,
    CheckpointFormat,
    CheckpointListing,
    CheckpointPlace,
    Level,
    Lineage,
)
from sickbay.training import bookkeeping, corruption
from sickbay.training.history import AttemptRecord, JobHistory
from sickbay.training.verdicts import BudgetKind, NodeBlame
from tests.sickbay.training.records import BEGIN, verdict

HOUR = timedelta(hours=1)


def lived(*nodes: tuple[str, ...]) -> JobHistory:
    """Attempts of one hour on these nodes, the last of which still runs."""
    attempts, lineage = [], []
    for number, names in enumerate(nodes, start=1):
        began, ended = BEGIN + (number - 1) * HOUR, BEGIN + number * HOUR
        running = number == len(nodes)
        attempts.append(
            AttemptRecord(
                attempt=number,
                nodes=len(names),
                gpus=8,
                planned_at=began,
                created_at=began,
                node_names=names,
                gone_at=None if running else ended,
            )
        )
        told = names if not running else ()
        lineage.append(Lineage(attempt=number, began_at=began, ended_at=None if running else ended, nodes=told))
    return JobHistory(attempts=tuple(attempts), lineage=tuple(lineage))


def wrong(node: str) -> NodeBlame:
    return NodeBlame(node=node, reason="wrong results", hardware=True, corrupts=True)


def saved(step: int, attempt: int, hours: float) -> Checkpoint:
    return Checkpoint(
        step=step, path=f"run/{attempt}/{step}", format=CheckpointFormat.DCP, level=Level.VERIFIED, attempt=attempt,
        written_at=BEGIN + hours * HOUR,
    )  # fmt: skip


def test_the_window_begins_when_the_node_joined_the_job_and_ends_now() -> None:
    history = corruption.spoilt(lived(("a",), ("b",), ("b", "c")), [wrong("b")], BEGIN + 3 * HOUR)
    assert [(each.node, each.since, each.until) for each in history.taints] == [("b", BEGIN + HOUR, BEGIN + 3 * HOUR)]


def test_a_blame_without_wrong_results_spoils_nothing() -> None:
    history = lived(("a",))
    assert corruption.spoilt(history, [NodeBlame(node="a", reason="xid-79", hardware=True)], BEGIN) is history


def test_a_node_that_never_took_part_has_spoilt_nothing() -> None:
    history = lived(("a",), ("b",))
    assert corruption.told_of(history, "z", ["gpu-wrong-result"], BEGIN + 2 * HOUR).taints == ()


def test_where_nobody_knows_who_took_part_the_node_may_have() -> None:
    history = lived(("a",), ("b",))
    first = history.lineage[0].model_copy(update={"nodes": ()})
    history = history.model_copy(update={"lineage": (first, *history.lineage[1:])})
    assert corruption.joined_at(history, "z") == BEGIN


def test_an_incident_whose_checks_found_wrong_results_spoils_what_its_node_did() -> None:
    history = corruption.told_of(lived(("a",)), "a", ["gpu-wrong-result", "ecc-uncorrected"], BEGIN + HOUR)
    assert [(each.node, each.reason) for each in history.taints] == [("a", "gpu-wrong-result")]


def test_an_incident_of_any_other_fault_spoils_nothing() -> None:
    assert corruption.told_of(lived(("a",)), "a", ["xid-79"], BEGIN + HOUR).taints == ()


def test_the_same_node_told_again_has_one_window_that_reaches_until_now() -> None:
    history = corruption.told_of(lived(("a",)), "a", ["gpu-wrong-result"], BEGIN + HOUR)
    history = corruption.told_of(history, "a", ["gpu-wrong-result"], BEGIN + 2 * HOUR)
    assert [each.until for each in history.taints] == [BEGIN + 2 * HOUR]


def test_the_job_goes_back_to_what_was_saved_before_the_node_joined() -> None:
    history = lived(("a",), ("a", "b"))
    history = bookkeeping.durable(history, saved(200, 2, 1.5))
    blamed = verdict(BudgetKind.PLATFORM, blamed=(wrong("b"),))
    history = bookkeeping.gone(bookkeeping.judged(history, blamed, "b", "", BEGIN + 2 * HOUR), BEGIN + 2 * HOUR)
    listing = CheckpointListing(
        observed_at=BEGIN, complete=True, checkpoints=(saved(200, 2, 1.5), saved(100, 1, 0.5)), problems=()
    )
    choice = choose(listing, CheckpointPlace(url="s3://b/run/{attempt}"), history, allow_nothing=True)
    assert choice.allowed
    assert choice.checkpoint is not None
    assert choice.checkpoint.step == 100
    assert "b took part in it and may have computed wrong" in choice.passed_over[0]
