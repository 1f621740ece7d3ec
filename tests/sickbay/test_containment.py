"""The cap of the watch's own cordons, and what ceilings come to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.containment import may_contain
from sickbay.limits import ceiling
from sickbay.policy.model import ContainmentPolicy, Limit

LIMITS = st.builds(Limit, count=st.integers(0, 50), percent=st.integers(0, 1000).map(lambda tenths: tenths / 10))


@pytest.mark.parametrize(
    ("count", "percent", "size", "expected"),
    [
        pytest.param(2, 20, 100, 2, id="the absolute number is smaller"),
        pytest.param(50, 20, 100, 20, id="the per cent is smaller"),
        pytest.param(5, 20, 1, 1, id="one node of one may always be repaired"),
        pytest.param(5, 20, 6, 2, id="a per cent is rounded up"),
        pytest.param(99, 10, 30, 3, id="an exact per cent is not"),
        pytest.param(99, 0.7, 1000, 7, id="a fraction that no float holds exactly is not either"),
        pytest.param(0, 20, 100, 0, id="no count means none"),
        pytest.param(5, 0, 100, 0, id="no per cent means none"),
        pytest.param(5, 20, 0, 0, id="an empty pool has nothing to give"),
    ],
)
def test_the_smaller_half_of_a_limit_holds(count: int, percent: float, size: int, expected: int) -> None:
    assert ceiling(Limit(count=count, percent=percent), size) == expected


@given(limit=LIMITS, size=st.integers(1, 5000))
def test_a_ceiling_never_passes_either_half_by_a_whole_node(limit: Limit, size: int) -> None:
    allowed = ceiling(limit, size)
    assert allowed <= limit.count
    assert allowed < limit.percent * size / 100 + 1
    assert (allowed == 0) == (limit.count == 0 or limit.percent == 0)


def test_the_watch_cordons_up_to_the_cap_and_then_says_why_not() -> None:
    policy = ContainmentPolicy(cap=Limit(count=5, percent=20))
    assert may_contain(policy, gpu_nodes=100, contained=4).allowed
    refused = may_contain(policy, gpu_nodes=100, contained=5)
    assert not refused.allowed
    assert refused.reason.startswith("containment cap reached: 5 of 100 GPU nodes are cordoned by Sickbay")


def test_a_cap_of_none_cordons_nothing() -> None:
    assert not may_contain(ContainmentPolicy(cap=Limit(count=0, percent=100)), gpu_nodes=10, contained=0).allowed
