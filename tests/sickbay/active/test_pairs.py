from itertools import combinations

import pytest

from sickbay.active.answers import CudaAnswer, CudaFailure, CudaStep, Rate
from sickbay.active.pairs import PairFinding, judge_pair, pair_faults, turns
from tests.sickbay.active.gpus import MOMENT, idle_gpu, nobody_came

GPUS = tuple(idle_gpu(index) for index in range(8))


@pytest.mark.parametrize("count", range(9))
def test_every_pair_has_one_turn_and_no_gpu_has_two_in_one(count: int) -> None:
    made = turns(GPUS[:count])
    pairs = [tuple(gpu.index for gpu in pair) for turn in made for pair in turn]
    assert sorted(pairs) == list(combinations(range(count), 2))
    for turn in made:
        indices = [gpu.index for pair in turn for gpu in pair]
        assert len(indices) == len(set(indices))


def bad(*pairs: tuple[int, int], code: str = "gpu-peer-copy-failed") -> list[PairFinding]:
    return [PairFinding(one=GPUS[one], other=GPUS[other], code=code, evidence="no end") for one, other in pairs]


@pytest.mark.parametrize(
    ("pairs", "part"),
    [
        ([(1, 2)], "0000:51:00/0000:52:00"),
        ([(1, 2), (2, 5)], "0000:52:00"),
        ([(1, 2), (1, 3), (2, 3)], "unknown"),
        ([(0, 1), (2, 3)], "unknown"),
    ],
)
def test_the_narrowest_part_is_blamed_that_explains_all(pairs: list[tuple[int, int]], part: str) -> None:
    """Detection 8.5: one pair, one GPU, or the whole fabric."""
    (fault,) = pair_faults(bad(*pairs), MOMENT)
    assert fault.component.id == part


def test_failed_and_slow_pairs_are_two_faults_and_good_ones_none() -> None:
    findings = [*bad((0, 1)), *bad((2, 3), code="gpu-peer-copy-slow"), PairFinding(one=GPUS[4], other=GPUS[5])]
    assert [fault.code for fault in pair_faults(findings, MOMENT)] == ["gpu-peer-copy-failed", "gpu-peer-copy-slow"]


def judged(answer: CudaAnswer) -> PairFinding:
    return judge_pair(GPUS[0], GPUS[1], answer, nobody_came, 0.25)


def test_a_pair_that_hangs_or_errs_has_failed() -> None:
    assert judged(CudaAnswer(step=CudaStep.PEER, timed_out=True, silent="no answer")).code == "gpu-peer-copy-failed"
    nvlink = CudaAnswer(step=CudaStep.PEER, failed=CudaFailure(call="cuMemcpyPeer", code=220))
    assert judged(nvlink).code == "gpu-peer-copy-failed"


def test_gpus_joined_by_nvlink_that_do_not_reach_each_other_are_unknown() -> None:
    finding = judged(CudaAnswer(step=CudaStep.INIT, peer_access=False))
    assert (finding.code, bool(finding.unjudged)) == ("", True)


def test_gpus_without_nvlink_need_not_reach_each_other() -> None:
    one, other = idle_gpu(0, "NVIDIA A10G"), idle_gpu(1, "NVIDIA A10G")
    answer = CudaAnswer(step=CudaStep.INIT, peer_access=False)
    assert judge_pair(one, other, answer, nobody_came, 0.25) == PairFinding(one=one, other=other)


def test_a_slow_pair_is_told_with_its_rate() -> None:
    finding = judged(CudaAnswer(step=CudaStep.CLOSE, rates=(Rate(what="peer", gigabytes_per_second=20.0),)))
    assert finding.code == "gpu-peer-copy-slow"
    assert "20.0 GB/s, of which 112.5 is the least" in finding.evidence
