"""What one pod left, put together; and evidence that must fit into a history."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.kube_objects import Pod
from sickbay.training.evidence import Evidence, LogState, PodEnd, RankEvidence, Sign, Stack
from sickbay.training.evidence_size import fitted
from sickbay.training.failures.classify import classify
from sickbay.training.pod_evidence import end_of, never_ran, with_log

BLOCK = """\
step 12: loss 2.31
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-01_12:00:05
  host      : node-1
  rank      : 9 (local_rank: 1)
  exitcode  : 1 (pid: 811)
  error_file: /tmp/error.json
  traceback :
  {"message": {"message": "ValueError: bad batch", "extraInfo": {"timestamp": "1793534405"}}}
============================================================
"""
ERROR_FILE = (
    '{"message": {"message": "KeyError: tokens", "extraInfo": {"py_callstack": "x", "timestamp": "1793534405"}}}'
)


def pod(phase: str = "Failed", state: dict[str, Any] | None = None) -> Pod:
    """A pod of rank 1 whose container is so."""
    statuses = [{"name": "main", "state": state}] if state is not None else []
    return Pod.model_validate(
        {
            "metadata": {"name": "llama-a3-1"},
            "spec": {"nodeName": "node-1"},
            "status": {"phase": phase, "containerStatuses": statuses},
        }
    )


def terminated(code: int, message: str = "") -> dict[str, Any]:
    return {
        "terminated": {
            "exitCode": code,
            "reason": "Error",
            "message": message,
            "startedAt": "2026-11-01T11:00:00Z",
            "finishedAt": "2026-11-01T12:00:06Z",
        }
    }


def test_the_end_is_the_pods_own_word() -> None:
    rank = end_of(pod(state=terminated(137)), 1)
    assert (rank.rank, rank.node, rank.pod, rank.exit_code) == (1, "node-1", "llama-a3-1", 137)
    assert rank.exited_at is not None
    assert (rank.log, rank.error) == (LogState.UNAVAILABLE, None)


def test_an_error_file_in_the_termination_message_is_read() -> None:
    error = end_of(pod(state=terminated(1, ERROR_FILE)), 1).error
    assert error is not None
    assert (error.exception, error.message) == ("KeyError", "KeyError: tokens")
    assert end_of(pod(state=terminated(1, "out of luck")), 1).error is None


def test_a_launchers_block_in_the_log_is_read() -> None:
    left = with_log(end_of(pod(state=terminated(1)), 1), BLOCK.encode(), cut=True)
    assert (left.rank.log, left.rank.last_step) == (LogState.CUT, 12)
    assert left.rank.error is not None
    assert left.rank.error.exception == "ValueError"


@pytest.mark.parametrize(
    ("phase", "state", "never"),
    [
        ("Pending", None, True),
        ("Failed", None, True),
        ("Failed", {"waiting": {"reason": "CreateContainerError"}}, True),
        ("Failed", terminated(1), False),
        ("Failed", {"running": {}}, False),
        ("Running", {"running": {}}, False),
        ("Running", None, False),
    ],
)
def test_a_pod_that_never_ran_has_no_log(phase: str, state: dict[str, Any] | None, never: bool) -> None:
    assert never_ran(pod(phase, state)) is never


@given(st.binary(max_size=400) | st.builds(lambda cut: BLOCK.encode()[:cut], st.integers(0, len(BLOCK))))
def test_a_log_of_any_bytes_is_read(log: bytes) -> None:
    assert with_log(RankEvidence(rank=0), log, cut=False).rank.rank == 0


def loud(ranks: int, signs: int = 24) -> Evidence:
    """Ranks that all say a lot."""
    said = tuple(
        Sign(code=f"code-{number}", line="x" * 400, number=number, details={"op": "y" * 200}) for number in range(signs)
    )
    end = PodEnd(message="z" * 400, conditions={"Ready": "w" * 400})
    told = tuple(RankEvidence(rank=rank, end=end, signs=said) for rank in range(ranks))
    return Evidence(ranks=told, stacks=tuple(Stack(rank=rank, frames=("f" * 200,)) for rank in range(100)))


def test_evidence_that_fits_is_left_alone() -> None:
    small = loud(4)
    assert fitted(small) is small


@pytest.mark.parametrize("ranks", [100, 1000, 20_000])
def test_evidence_of_any_number_of_ranks_fits_and_says_what_is_cut(ranks: int) -> None:
    cut = fitted(loud(ranks))
    assert len(cut.model_dump_json()) <= 1 << 20
    assert cut.missing
    assert [rank.rank for rank in cut.ranks] == list(range(len(cut.ranks)))
    # The first sign stays longest: a cause stands before its consequences.
    assert all(rank.signs[0].code == "code-0" for rank in cut.ranks)
    assert len(cut.ranks) >= min(ranks, 1000)


def test_cut_evidence_can_still_be_classified() -> None:
    sign = Sign(code="gpu-lost", line="GPU is lost" + " " * 300)
    ranks = (RankEvidence(rank=0, node="node-0", exit_code=1, signs=(sign,)), *loud(1000).ranks[1:])
    assert classify(fitted(Evidence(ranks=ranks))).rule == classify(Evidence(ranks=ranks[:1])).rule
