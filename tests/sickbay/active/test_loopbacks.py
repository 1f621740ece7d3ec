"""What nccl-tests and fi_pingpong print, and what it means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.active.efa import EfaTry, judge_efa_loopback
from sickbay.active.nccl import judge_nccl
from sickbay.checks import CheckResult
from tests.sickbay.active.gpus import MOMENT

GOOD = """# nThread 1 nGpus 8 minBytes 1073741824 maxBytes 1073741824 step: 1048576(bytes) warmup iters: 5 iters: 20
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
  1073741824     268435456     float     sum      -1   4200.1  255.65  447.38      0   4198.7  255.73  447.53      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 447.455
#
"""


def code(output: str, *, timed_out: bool = False, exit_code: int | None = 0, floor: float | None = 300) -> str:
    finding = judge_nccl(output, timed_out=timed_out, exit_code=exit_code, floor=floor)
    return finding.code or ("unknown" if finding.unjudged else "well")


def test_a_run_to_the_end_above_the_floor_is_well() -> None:
    assert code(GOOD) == "well"
    assert code(GOOD, floor=None) == "well"


def test_what_a_run_can_show_is_told_apart() -> None:
    assert code(GOOD, floor=450) == "nccl-slow"
    assert code(GOOD.replace(": 0 OK", ": 12 FAILED"), exit_code=1) == "nccl-wrong-result"
    assert code("node-a: Test NCCL failure common.cu:958 'unhandled cuda error'", exit_code=2) == "nccl-failed"
    assert code("# nThread 1", timed_out=True, exit_code=None) == "nccl-hangs"


@pytest.mark.parametrize("output", ["", "all_reduce_perf: error while loading shared libraries: libnccl.so.2"])
def test_a_program_that_cannot_run_says_nothing_of_the_fabric(output: str) -> None:
    assert code(output, exit_code=127) == "unknown"


@given(st.integers(0, len(GOOD) - 4))
def test_an_output_that_is_cut_says_nothing(length: int) -> None:
    assert code(GOOD[:length]) == "unknown"


@given(st.text())
def test_no_other_text_is_well(text: str) -> None:
    assert code(text) != "well"


ROUND = """bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
64      10      =10      1.2k        0.00s      3.21      19.91       0.05
1m      10      =10      20m         0.01s   2519.04     416.26       0.00
"""


def tried(**more: object) -> EfaTry:
    return EfaTry.model_validate({"device": "rdmap79s0", "tries": 3, "exit_code": 0, "output": ROUND} | more)


def test_a_device_that_carries_messages_is_healthy() -> None:
    assert judge_efa_loopback([tried()], MOMENT).result is CheckResult.HEALTHY


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"exit_code": 1, "output": "pp_comp(): -110"}, "exit code 1, pp_comp(): -110"),
        ({"exit_code": None, "timed_out": True}, "no end"),
        ({"output": ""}, "exit code 0, nothing said"),
    ],
)
def test_a_device_that_does_not_is_at_fault(more: dict[str, object], words: str) -> None:
    (fault,) = judge_efa_loopback([tried(), tried(device="rdmap96s0", **more)], MOMENT).faults
    assert (fault.code, fault.component.id) == ("efa-loopback-failed", "rdmap96s0")
    assert fault.evidence == (f"fi_pingpong of rdmap96s0 with itself, 3 tries: {words}",)


@pytest.mark.parametrize(
    "more",
    [
        {"exit_code": 61, "output": "fi_getinfo(): -61 (No data available)"},
        {"exit_code": None, "output": "", "not_started": "cannot start python: No such file"},
    ],
)
def test_a_program_that_does_not_find_its_device_says_nothing_of_it(more: dict[str, object]) -> None:
    outcome = judge_efa_loopback([tried(**more)], MOMENT)
    assert (outcome.result, outcome.faults) == (CheckResult.UNKNOWN, ())
