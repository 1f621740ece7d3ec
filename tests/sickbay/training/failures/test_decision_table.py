"""The decision table of facts: training, 2.7, row by row, and what it says where rows contradict each other.

The logs are of our own making, in the shapes of PyTorch, NCCL, Megatron and Kubernetes.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.faults import Component, ComponentKind, Fault, FaultClass, Rung, Severity
from sickbay.training.evidence import Ending, Evidence, NodeEvidence, PastFailure, PodEnd, RankEvidence
from sickbay.training.failures.classify import classify
from sickbay.training.failures.folder import evidence_of_text
from sickbay.training.failures.node_states import near
from sickbay.training.verdicts import BudgetKind, FailureAction, FailureClass, FailureVerdict

ENDED = datetime(2026, 11, 1, 12, tzinfo=UTC)
OOM = "[rank{0}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79 GiB in all"
ILLEGAL = "[rank0]: torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
ASSERT = "[rank0]: RuntimeError: CUDA error: device-side assert triggered"
VALUE_ERROR = "[rank0]: ValueError: expected 3 columns and found 4"
SIGTERM = "W1101 12:00:00.000000 1 torch/elastic/agent/server/api.py:1] Received 15 death signal, shutting down workers"
"""What is left of a rank that another's failure ended."""


def log(*ranks: str, **more: Any) -> Evidence:
    """What ranks on nodes of their own said."""
    text = "\n".join(f"### rank {rank} (node{chr(65 + rank)})\n{words}" for rank, words in enumerate(ranks))
    return evidence_of_text(text).model_copy(update={"attempt": 2, "ended_at": ENDED, **more})


def pods(*ends: PodEnd, **more: Any) -> Evidence:
    """How the pods of ranks on nodes of their own ended."""
    ranks = tuple(
        RankEvidence(rank=rank, node=f"node{chr(65 + rank)}", pod=f"run-{rank}", end=end, exit_code=end.exit_code)
        for rank, end in enumerate(ends)
    )
    return Evidence(**{"attempt": 2, "ended_at": ENDED, "ending": Ending.FAILED, "ranks": ranks, **more})


def failed(code: int = 1, reason: str = "Error", **more: Any) -> PodEnd:
    return PodEnd(phase="Failed", exit_code=code, container_reason=reason, **more)


def fault(node: str, code: str = "xid-79", rung: Rung = Rung.REBOOT, at: datetime = ENDED) -> NodeEvidence:
    """A node with a fault that a detector found on one of its GPUs."""
    component = Component(kind=ComponentKind.GPU, id="0000:53:00")
    told: dict[str, Any] = {"class": FaultClass.GPU, "severity": Severity.FATAL, "first_seen": at, "last_seen": at}
    return NodeEvidence(node=node, faults=(Fault(code=code, component=component, rung=rung, **told),))


def past(attempt: int, found: FailureVerdict, node: str, gpu: str = "", *, progress: bool = True) -> PastFailure:
    return PastFailure(
        attempt=attempt, verdict=found, culprit_node=node, culprit_gpu=gpu, nodes=(node,), progress=progress
    )


P, D, A, C = FailureClass.PLATFORM, FailureClass.DISRUPTION, FailureClass.APPLICATION, FailureClass.CONFIG
PREEMPTED = failed(137, "Error", conditions={"DisruptionTarget": "PreemptionByScheduler"})
OOM_KILLED = failed(137, "OOMKilled")
DONE = PodEnd(phase="Succeeded", exit_code=0, container_reason="Completed")
STEPPED: dict[str, Any] = {"stepped": True, "ran_before": True, "last_step": 500}

TABLE: list[tuple[str, Evidence, FailureClass, FailureAction]] = [
    ("1", pods(failed(143), ending=Ending.CANCELLED), FailureClass.POLICY, FailureAction.STOP),
    ("2", pods(failed(143), ending=Ending.DEADLINE), FailureClass.POLICY, FailureAction.STOP),
    ("3", pods(failed(), nodes=(fault("nodeA"),)), P, FailureAction.RESTART_EXCLUDING_NODE),
    ("4", pods(failed(), nodes=(NodeEvidence(node="nodeA", exists=False),)), P, FailureAction.RESTART_EXCLUDING_NODE),
    ("5", pods(PREEMPTED, failed(143)), D, FailureAction.RESTART),
    ("7 memory", pods(OOM_KILLED, **STEPPED), C, FailureAction.CONFIRM_ONCE),
    ("8", pods(DONE, DONE, ending=Ending.ENDED, **STEPPED), FailureClass.AMBIGUOUS, FailureAction.RESTART),
    ("10", log("[rank0]: ModuleNotFoundError: No module named 'mymodel'", stepped=False), C, FailureAction.STOP),
    ("11", log(VALUE_ERROR, **STEPPED), A, FailureAction.CONFIRM_ONCE),
    ("16", log(OOM.format(0), **STEPPED), A, FailureAction.CONFIRM_ONCE),
    ("17", log(ASSERT, **STEPPED), A, FailureAction.CONFIRM_ONCE),
    ("18", log(ILLEGAL, **STEPPED), FailureClass.AMBIGUOUS, FailureAction.RESTART),
    ("21", log(SIGTERM, SIGTERM), FailureClass.CASCADE, FailureAction.FIND_ROOT),
    ("30", pods(failed(137), **STEPPED), FailureClass.AMBIGUOUS, FailureAction.RESTART),
]  # fmt: skip


@pytest.mark.parametrize(("evidence", "wanted", "action"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_a_row_of_the_table_decides(evidence: Evidence, wanted: FailureClass, action: FailureAction) -> None:
    found = classify(evidence)
    told = f"{found.rule}: {found.reason}"
    assert (found.failure_class, found.action) == (wanted, action), told


def test_two_nodes_that_break_at_once_are_both_blamed() -> None:
    found = classify(pods(failed(), failed(), nodes=(fault("nodeA"), fault("nodeB", "row-remap-failed", Rung.REPLACE))))
    assert [each.node for each in found.blamed] == ["nodeA", "nodeB"]
    assert "xid-79 on nodeA and row-remap-failed on nodeB" in found.reason


def test_what_detectors_told_is_no_second_evidence_and_a_ranks_own_words_are() -> None:
    told = classify(pods(failed(), nodes=(fault("nodeA"),)))
    assert [(each.hardware, each.known) for each in told.blamed] == [(True, True)]
    own = classify(log("[rank0]: RuntimeError: CUDA error: uncorrectable ECC error encountered", **STEPPED))
    assert [(each.hardware, each.known) for each in own.blamed] == [(True, False)]


def test_a_broken_device_is_named_before_a_node_that_only_does_not_report() -> None:
    silent = fault("nodeA", "node-not-ready")
    found = classify(pods(failed(), failed(), nodes=(silent, fault("nodeB", "xid-64", Rung.REPLACE))))
    assert found.culprits == ("nodeB", "nodeA")


def test_a_bug_of_the_code_elsewhere_before_the_fault_outweighs_hardware_noise() -> None:
    at = "2026-11-01T11:59:{0} "
    evidence = log(at.format(10) + VALUE_ERROR, at.format(58) + SIGTERM, nodes=(fault("nodeB"),), **STEPPED)
    assert classify(evidence).failure_class is A


def test_an_exception_on_the_broken_node_itself_is_the_nodes_doing() -> None:
    assert classify(log(VALUE_ERROR, SIGTERM, nodes=(fault("nodeA"),), **STEPPED)).failure_class is P


def test_a_fault_too_slight_to_repair_for_decides_nothing() -> None:
    slight = fault("nodeA", "ecc-corrected", Rung.BLOCK_NEW_WORK)
    assert classify(log(VALUE_ERROR, nodes=(slight,), **STEPPED)).failure_class is A


def test_a_failure_that_follows_its_gpu_is_the_gpus() -> None:
    first = classify(log(ILLEGAL, **{**STEPPED, "last_step": 100}))
    assert first.budget is BudgetKind.UNEXPLAINED
    assert first.blamed == ()
    again = classify(log(ILLEGAL, past=(past(1, first, "nodeA"),), **STEPPED))
    assert (again.failure_class, again.rule) == (P, "row-19-follows-the-node")
    assert [each.node for each in again.blamed] == ["nodeA"]


def test_a_failure_that_follows_the_job_over_nodes_is_the_jobs() -> None:
    first = classify(log(ILLEGAL, **STEPPED))
    again = classify(log(ILLEGAL, past=(past(1, first, "nodeX", progress=False),), **STEPPED))
    assert (again.failure_class, again.action) == (A, FailureAction.STOP)


def test_the_first_failure_that_only_follows_from_others_is_not_the_cause() -> None:
    found = classify(log(SIGTERM, VALUE_ERROR.replace("rank0", "rank1"), **STEPPED))
    assert found.failure_class is A
    assert any("nodeB" in culprit for culprit in found.culprits)


def test_a_source_that_is_down_is_told_and_nobody_is_blamed() -> None:
    missing = ("log of pod run-0: timed out", "the node's faults: no answer")
    found = classify(Evidence(attempt=1, ending=Ending.FAILED, missing=missing))
    assert (found.failure_class, found.budget, found.blamed) == (FailureClass.AMBIGUOUS, BudgetKind.UNEXPLAINED, ())
    assert found.missing == missing


def test_our_own_drain_is_a_disruption_that_keeps_off_the_node_for_a_while() -> None:
    leaving = NodeEvidence(node="nodeA", ready=False, planned="drained by incident-1")
    found = classify(pods(failed(143), nodes=(leaving,)))
    assert found.failure_class is D
    assert [(each.node, each.soft) for each in found.blamed] == [("nodeA", True)]


def test_a_fault_long_before_the_end_is_not_of_this_failure() -> None:
    assert near(fault("nodeA").faults[0], ENDED)
    assert not near(fault("nodeA", at=ENDED - timedelta(hours=1)).faults[0], ENDED)


words = st.text(alphabet=st.characters(codec="utf-8"), max_size=300)
telling = st.sampled_from(
    [ILLEGAL, VALUE_ERROR, SIGTERM, OOM.format(3), "### rank 7 (x", "\x1b[31mNCCL WARN\x1b[0m", "\r", "\0"]
)


@given(st.lists(st.one_of(words, telling), max_size=12).map("\n".join))
def test_no_log_breaks_the_classification_and_every_verdict_names_its_rule(text: str) -> None:
    found = classify(evidence_of_text(text))
    assert found.rule.startswith("row-")
    assert found.reason


ends = st.builds(
    PodEnd, phase=words, reason=words, message=words, exit_code=st.none() | st.integers(), container_reason=words,
    conditions=st.dictionaries(words, words, max_size=3),
)  # fmt: skip


@given(ends)
def test_no_end_state_breaks_the_classification(end: PodEnd) -> None:
    assert classify(pods(end)).rule.startswith("row-")
