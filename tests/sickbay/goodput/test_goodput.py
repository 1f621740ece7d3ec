"""Where a job's time went: every second once, a step once, and unknown is never productive."""

from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.goodput.account import account_for
from sickbay.goodput.model import Bucket, Cause, GoodputReport
from sickbay.goodput.picture import picture
from sickbay.training.history import AttemptEnd, AttemptRecord, JobHistory, Pause, PauseKind, StepSample
from sickbay.training.verdicts import BudgetKind, FailureAction, FailureClass, FailureVerdict

SUBMITTED = datetime(2026, 11, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def at(seconds: float) -> datetime:
    return SUBMITTED + timedelta(seconds=seconds)


def sample(seconds: float, step: int, stall: float = 0) -> StepSample:
    return StepSample(at=at(seconds), step=step, checkpoint_stall=timedelta(seconds=stall))


def verdict(failure_class: FailureClass) -> FailureVerdict:
    return FailureVerdict(
        failure_class=failure_class, action=FailureAction.RESTART, rule="row-1", reason="", budget=BudgetKind.PLATFORM
    )


def attempt(number: int = 1, **values: object) -> AttemptRecord:
    """An attempt of 16 GPUs that was created after 10 s, placed after 20, running after 30, stepping after 60."""
    told: dict[str, object] = {
        "attempt": number, "nodes": 2, "gpus": 16, "planned_at": at(0), "created_at": at(10), "placed_at": at(20),
        "running_at": at(30), "first_step_at": at(60), "restore": timedelta(seconds=5),
    }  # fmt: skip
    return AttemptRecord.model_validate({**told, **values})


def failed(number: int = 1, **values: object) -> AttemptRecord:
    """The same, dead after 160 s, noticed after 170, gone after 200: step 100 of which 60 are durable."""
    told: dict[str, object] = {
        "samples": (sample(110, 50, stall=10), sample(160, 100, stall=10)), "durable_step": 60, "stopped_at": at(160),
        "noticed_at": at(170), "gone_at": at(200), "end": AttemptEnd.FAILED,
        "verdict": verdict(FailureClass.PLATFORM),
    }  # fmt: skip
    return attempt(number, **{**told, **values})


def report(
    *attempts: AttemptRecord,
    now: float = 1000,
    closed: float | None = None,
    succeeded: bool = False,
    pauses: tuple[Pause, ...] = (),
) -> GoodputReport:
    durable = max((each.durable_step or 0 for each in attempts), default=0) or None
    history = JobHistory(attempts=attempts, pauses=pauses, durable_step=durable)
    return account_for(history, SUBMITTED, at(now), None if closed is None else at(closed), succeeded=succeeded)


def seconds(made: GoodputReport) -> dict[Bucket, float]:
    """Buckets that are not empty."""
    return {each.bucket: each.time.total_seconds() for each in made.buckets if each.time}


def test_each_part_of_an_attempt_has_its_bucket() -> None:
    made = report(failed(), closed=200)
    assert seconds(made) == {
        Bucket.QUEUE: 20,
        Bucket.START: 35,
        Bucket.RESTORE: 5,
        Bucket.PRODUCTIVE: 40 + 10,
        Bucket.CHECKPOINT_STALL: 10,
        Bucket.RECOMPUTED: 40,
        Bucket.HANG_DETECTION: 10,
        Bucket.TEARDOWN: 30,
    }


def test_gpus_count_while_they_are_held_and_not_in_the_queue() -> None:
    made = report(failed(), closed=200)
    assert made.gpu_time == timedelta(seconds=180) * 16
    assert made.runtime_goodput == pytest.approx(50 / 180)
    assert made.scheduling_goodput == pytest.approx(180 / 200)
    assert made.ettr == pytest.approx(50 / 200)
    assert made.ettr_running == pytest.approx(50 / 180)


def test_a_step_that_is_done_over_counts_in_its_last_execution() -> None:
    second = attempt(
        2, planned_at=at(200), created_at=at(210), placed_at=at(210), running_at=at(220), first_step_at=at(230),
        resume_step=60, samples=(sample(300, 130),), durable_step=130, stopped_at=at(300), noticed_at=at(300),
        gone_at=at(310), end=AttemptEnd.REACHED_TARGET,
    )  # fmt: skip
    made = report(failed(), second, closed=310, succeeded=True)
    assert seconds(made)[Bucket.PRODUCTIVE] == 50 + 70
    assert seconds(made)[Bucket.RECOMPUTED] == 40


def test_a_return_to_an_older_checkpoint_takes_back_what_was_productive() -> None:
    second = attempt(
        2, planned_at=at(200), created_at=at(210), placed_at=at(210), running_at=at(220), first_step_at=at(230),
        resume_step=10,
    )  # fmt: skip
    made = report(failed(), second, now=240)
    assert seconds(made)[Bucket.PRODUCTIVE] == 8
    assert seconds(made)[Bucket.UNKNOWN] == 10


def test_steps_of_an_open_job_since_its_newest_checkpoint_are_unknown() -> None:
    made = report(attempt(samples=(sample(160, 100),), durable_step=60), now=170)
    assert made.open
    assert seconds(made)[Bucket.PRODUCTIVE] == 60
    assert seconds(made)[Bucket.UNKNOWN] == 40 + 10
    assert made.unknown_share == pytest.approx(50 / 170)


def test_steps_that_nobody_saved_are_lost_with_a_job_that_failed() -> None:
    assert seconds(report(failed(durable_step=None), closed=200))[Bucket.RECOMPUTED] == 90


def test_ranks_that_tell_nothing_are_known_by_what_they_saved() -> None:
    made = report(attempt(durable_step=100, progress_at=at(160)), now=200)
    assert seconds(made)[Bucket.PRODUCTIVE] == 100
    assert seconds(made)[Bucket.UNKNOWN] == 40


def test_pods_that_wait_for_room_are_in_the_queue_and_hold_no_gpu() -> None:
    made = report(attempt(placed_at=None, running_at=None, first_step_at=None), now=500)
    assert seconds(made) == {Bucket.QUEUE: 500}
    assert made.gpu_time == timedelta(0)
    assert made.runtime_goodput is None


def test_an_attempt_that_never_stepped_only_started() -> None:
    never = attempt(first_step_at=None, stopped_at=at(30), noticed_at=at(90), gone_at=at(100), end=AttemptEnd.FAILED)
    assert seconds(report(never, closed=100)) == {Bucket.QUEUE: 20, Bucket.START: 70, Bucket.TEARDOWN: 10}


def test_what_a_person_takes_to_decide_is_held_and_put_down_to_the_failure() -> None:
    pause = Pause(kind=PauseKind.HELD, began_at=at(210), ended_at=at(400))
    made = report(failed(verdict=verdict(FailureClass.APPLICATION)), closed=410, pauses=(pause,))
    assert seconds(made)[Bucket.HELD] == 190
    assert seconds(made)[Bucket.QUEUE] == 20 + 20
    lost = {each.cause: each.time.total_seconds() for each in made.lost}
    assert lost == {Cause.FIRST_START: 60, Cause.CHECKPOINTS: 10, "application": 40 + 10 + 30 + 10 + 190 + 10}


def test_a_pause_that_goes_on_is_held_until_now() -> None:
    made = report(pauses=(Pause(kind=PauseKind.HELD, began_at=at(100)),), now=300)
    assert seconds(made) == {Bucket.QUEUE: 100, Bucket.HELD: 200}


def test_the_start_after_a_failure_is_put_down_to_it() -> None:
    second = attempt(2, created_at=at(230), placed_at=at(230), running_at=at(240), first_step_at=at(260))
    made = report(failed(), second, now=260)
    assert {each.cause for each in made.segments if each.attempt == 2} == {"platform"}


def test_clocks_of_nodes_that_run_ahead_or_behind_move_nothing_out_of_the_job() -> None:
    odd = attempt(first_step_at=at(-500), samples=(sample(-400, 10), sample(9_000, 100)), restore=DAY)
    made = report(odd, now=100)
    assert sum(seconds(made).values()) == 100


def test_a_job_just_submitted_has_no_ratio() -> None:
    made = report(now=0)
    assert (made.ettr, made.unknown_share, made.segments) == (None, None, ())


def test_the_picture_is_drawn_from_every_segment_and_keeps_names_harmless() -> None:
    made = report(failed(), closed=200)
    root = ElementTree.fromstring(picture(made, "ns/<b>&"))
    titles = [each.text for each in root.iter("{http://www.w3.org/2000/svg}title")]
    assert "recomputed 40.0 s (platform)" in titles
    assert "ns/<b>&: ETTR 25.0%, 1 attempt(s)" in {each.text for each in root}


def test_a_picture_of_no_time_can_be_drawn() -> None:
    ElementTree.fromstring(picture(report(now=0), "a/b"))


moments = st.integers(-1_000, 5_000_000_000).map(lambda micro: SUBMITTED + timedelta(microseconds=micro))
maybe = st.none() | moments
steps = st.integers(0, 500)
attempts = st.builds(
    AttemptRecord, attempt=st.integers(1, 9), nodes=st.just(1), gpus=st.integers(0, 64), planned_at=moments,
    created_at=maybe, placed_at=maybe, running_at=maybe, first_step_at=maybe,
    restore=st.timedeltas(timedelta(0), DAY), resume_step=st.none() | steps, durable_step=st.none() | steps,
    samples=st.lists(
        st.builds(StepSample, at=moments, step=steps, checkpoint_stall=st.timedeltas(timedelta(0), DAY)), max_size=5
    ).map(tuple),
    progress_at=maybe, stopped_at=maybe, noticed_at=maybe, gone_at=maybe, end=st.none() | st.sampled_from(AttemptEnd),
    verdict=st.none() | st.sampled_from(FailureClass).map(verdict), why=st.just(""), node_names=st.just(()),
    culprit_node=st.just(""), culprit_gpu=st.just(""),
)  # fmt: skip
histories = st.builds(
    JobHistory,
    attempts=st.lists(attempts, max_size=5).map(tuple),
    pauses=st.lists(
        st.builds(Pause, kind=st.sampled_from(PauseKind), began_at=moments, ended_at=maybe, why=st.just("")), max_size=4
    ).map(tuple),
    durable_step=st.none() | steps,
    exclusions=st.just(()), lineage=st.just(()), taints=st.just(()), proven=st.just(()), invalid=st.just(()),
)  # fmt: skip


@given(histories, moments, maybe, st.booleans())
def test_the_buckets_add_up_to_the_microsecond_whatever_a_history_holds(
    history: JobHistory, now: datetime, closed: datetime | None, succeeded: bool
) -> None:
    made = account_for(history, SUBMITTED, now, closed, succeeded=succeeded)
    assert made.wall == made.until - SUBMITTED
    assert sum((each.time for each in made.buckets), timedelta(0)) == made.wall
    assert sum((each.gpu_time for each in made.buckets), timedelta(0)) == made.gpu_time
    productive = next(each for each in made.buckets if each.bucket is Bucket.PRODUCTIVE)
    assert productive.time + sum((each.time for each in made.lost), timedelta(0)) == made.wall
    ends = [SUBMITTED, *(each.ended_at for each in made.segments)]
    assert [each.began_at for each in made.segments] == ends[:-1]
    assert all(each.began_at < each.ended_at for each in made.segments)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40)), max_size=6), st.integers(1, 60))
def test_every_step_of_a_job_that_reached_its_target_counts_once(lives: list[tuple[int, int]], last_steps: int) -> None:
    """Each life does some steps of one second and loses some of the last; the job's last life loses none."""
    records, clock, done = [], 0, 0
    for number, (did, lost) in enumerate([*lives, (last_steps, 0)], start=1):
        began, reached = clock + 10, done + did
        marks = tuple(sample(began + each, done + each) for each in range(1, did + 1))
        ended = began + did
        records.append(
            attempt(
                number,
                planned_at=at(clock),
                created_at=at(clock),
                placed_at=at(clock),
                running_at=at(began),
                first_step_at=at(began),
                restore=timedelta(0),
                resume_step=done or None,
                samples=marks,
                stopped_at=at(ended),
                noticed_at=at(ended),
                gone_at=at(ended),
                end=AttemptEnd.FAILED,
            )
        )
        clock, done = ended, max(reached - lost, 0)
    made = report(*records, closed=clock, succeeded=True)
    assert seconds(made)[Bucket.PRODUCTIVE] == done
    assert seconds(made).get(Bucket.UNKNOWN) is None
