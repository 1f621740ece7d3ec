"""Which nodes the cluster's jobs make a suspect of."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from sickbay.checks import CheckLayer, CheckReport, CheckResult
from sickbay.faults import Rung
from sickbay.nodes import GpuReading, HostProbe, NodeRef
from sickbay.suspicions import (
    JOBS,
    KEPT,
    PER_DAY,
    WINDOW,
    Suspicions,
    fault_of_blame,
    fault_of_suspect,
    heard,
    named,
    new_suspects,
    not_tried,
    only_suspicions,
)
from sickbay.training.handshake import HurtReport
from sickbay.training.verdicts import NodeBlame

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


def node(name: str) -> NodeRef:
    return NodeRef(cluster="c", name=name, uid=f"uid-{name}", provider_id=f"aws:///a/i-{name}")


def hurt(
    job: str,
    where: str = "n1",
    *,
    attempt: int = 1,
    failure: str = "illegal memory access",
    ago: timedelta = timedelta(0),
    explained: bool = False,
) -> HurtReport:
    return HurtReport(
        job_id=job, attempt=attempt, node=node(where), fingerprint=failure, explained=explained, at=NOW - ago
    )


def told(*reports: HurtReport) -> Suspicions:
    known = Suspicions()
    for report in reports:
        known = heard(known, report, NOW)
    return known


def suspected(*reports: HurtReport) -> list[str]:
    return [suspect.node.name for suspect in new_suspects(told(*reports), NOW)]


def test_the_same_failure_of_three_different_jobs_makes_a_suspect() -> None:
    assert suspected(hurt("a"), hurt("b"), hurt("c")) == ["n1"]


def test_one_job_suspects_nobody_however_often_it_fails() -> None:
    assert suspected(*(hurt("a", attempt=attempt) for attempt in range(1, 30))) == []


def test_two_jobs_are_not_enough() -> None:
    assert suspected(hurt("a"), hurt("b")) == []


def test_different_failures_are_not_the_same_failure() -> None:
    assert suspected(hurt("a", failure="x"), hurt("b", failure="y"), hurt("c", failure="z")) == []


def test_what_is_explained_suspects_nobody() -> None:
    assert suspected(hurt("a"), hurt("b"), hurt("c", explained=True)) == []


def test_a_failure_that_is_everywhere_follows_the_image_and_no_node() -> None:
    everywhere = [hurt(job, where) for where in ("n1", "n2", "n3") for job in "abc"]
    assert suspected(*everywhere) == []


def test_a_machine_that_has_it_twice_as_often_as_any_other_stands_out() -> None:
    reports = [hurt(job) for job in "abcd"] + [hurt(job, "n2") for job in "xy"]
    assert suspected(*reports) == ["n1"]


def test_what_is_older_than_the_window_is_forgotten() -> None:
    assert suspected(hurt("a", ago=WINDOW), hurt("b"), hurt("c")) == []


def test_the_same_attempt_told_twice_counts_once_and_a_later_explanation_takes_it_back() -> None:
    known = told(hurt("a"), hurt("a"), hurt("b"), hurt("c"))
    assert len(known.reports) == 3
    assert new_suspects(heard(known, hurt("c", explained=True), NOW), NOW) == ()


def test_a_suspect_is_named_once_and_again_only_for_another_job() -> None:
    known = told(hurt("a"), hurt("b"), hurt("c"))
    known = named(known, new_suspects(known, NOW))
    assert new_suspects(known, NOW) == ()
    later = NOW + timedelta(days=2)
    assert [suspect.jobs for suspect in new_suspects(heard(known, hurt("d"), later), later)] == [("a", "b", "c", "d")]


def test_more_suspects_at_once_than_a_day_may_have_are_held_back() -> None:
    known = told(*(hurt(job, where, failure=where) for where in ("n1", "n2", "n3", "n4") for job in "abc"))
    first = new_suspects(known, NOW)
    assert len(first) == PER_DAY
    known = named(known, first)
    assert new_suspects(known, NOW + timedelta(hours=1)) == ()
    assert len(new_suspects(known, NOW + timedelta(days=1))) == PER_DAY


def test_a_suspicion_blocks_new_work_and_no_more() -> None:
    suspect = new_suspects(told(hurt("a"), hurt("b"), hurt("c")), NOW)[0]
    blame = NodeBlame(node="n1", reason="uncorrectable ECC error", hardware=True, code="ecc")
    for fault in (fault_of_suspect(suspect), fault_of_blame(blame, "job-a", NOW)):
        assert fault.rung is Rung.BLOCK_NEW_WORK
        assert only_suspicions([fault])
    assert not only_suspicions([])


def test_a_gpu_in_use_or_without_a_passed_check_clears_nothing() -> None:
    def probe(count: int | None, result: CheckResult) -> HostProbe:
        check = CheckReport(name="gpu-work", layer=CheckLayer.ACTIVE, result=result, at=NOW)
        gpu = GpuReading(uuid="g", pci="0000:61:00", process_count=count)
        return HostProbe(observed_at=NOW, boot_id="b", gpus=(gpu,), gpus_answered=True, checks=(check,))

    assert not_tried(probe(0, CheckResult.HEALTHY)) == ()
    assert not_tried(probe(1, CheckResult.HEALTHY))
    assert not_tried(probe(None, CheckResult.HEALTHY))
    assert not_tried(probe(0, CheckResult.NOT_APPLICABLE))
    assert not_tried(probe(0, CheckResult.UNKNOWN))


REPORTS = st.builds(
    hurt,
    job=st.sampled_from("abcdef"),
    where=st.sampled_from(["n1", "n2", "n3"]),
    attempt=st.integers(1, 3),
    failure=st.sampled_from(["x", "y"]),
    ago=st.timedeltas(timedelta(0), timedelta(days=40)),
    explained=st.booleans(),
)


@given(st.lists(REPORTS, max_size=40))
def test_no_suspect_without_enough_different_jobs_and_never_more_than_a_day_may_have(reports: list[HurtReport]) -> None:
    known = told(*reports)
    assert len(known.reports) <= KEPT
    suspects = new_suspects(known, NOW)
    assert len(suspects) <= PER_DAY
    for suspect in suspects:
        jobs = {
            report.job_id
            for report in known.reports
            if report.node == suspect.node and report.fingerprint == suspect.fingerprint
        }
        assert len(jobs) >= JOBS
