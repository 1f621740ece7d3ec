import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.aws_errors import AwsErrorKind, classify


@pytest.mark.parametrize(
    ("code", "kind", "final"),
    [
        ("RequestLimitExceeded", AwsErrorKind.THROTTLED, False),
        ("Throttling", AwsErrorKind.THROTTLED, False),
        ("PriorRequestNotComplete", AwsErrorKind.THROTTLED, False),
        ("InternalError", AwsErrorKind.TRANSIENT, False),
        ("ScalingActivityInProgress", AwsErrorKind.TRANSIENT, False),
        ("ResourceContention", AwsErrorKind.TRANSIENT, False),
        ("InsufficientInstanceCapacity", AwsErrorKind.CAPACITY, False),
        ("VcpuLimitExceeded", AwsErrorKind.QUOTA, True),
        ("IncorrectInstanceState", AwsErrorKind.STATE, False),
        ("InvalidInstanceID.NotFound", AwsErrorKind.GONE, True),
        ("OperationNotPermitted", AwsErrorKind.POLICY, True),
        ("UnauthorizedOperation", AwsErrorKind.POLICY, True),
        ("InvalidInstanceID.Malformed", AwsErrorKind.CALLER, True),
        ("InvalidParameterValue", AwsErrorKind.CALLER, True),
        ("InvalidParameterCombination", AwsErrorKind.CALLER, True),
        ("ExpiredToken", AwsErrorKind.CREDENTIALS, False),
        ("SomethingNew", AwsErrorKind.UNKNOWN, False),
    ],
)
def test_each_code_has_its_kind_and_only_hopeless_ones_are_final(code: str, kind: AwsErrorKind, final: bool) -> None:
    assert classify(code, 400) is kind
    assert kind.final is final


def test_an_unknown_code_with_a_server_error_passes_by_itself() -> None:
    assert classify("SomethingNew", 503) is AwsErrorKind.TRANSIENT


def test_a_known_code_outranks_the_status() -> None:
    assert classify("UnauthorizedOperation", 500) is AwsErrorKind.POLICY


def test_a_throttle_says_when_to_come_back_and_capacity_takes_longer() -> None:
    throttled, capacity = AwsErrorKind.THROTTLED.retry_after, AwsErrorKind.CAPACITY.retry_after
    assert throttled is not None
    assert capacity is not None
    assert throttled < capacity


@given(st.text(), st.integers())
def test_no_answer_of_aws_is_beyond_the_table(code: str, status: int) -> None:
    assert classify(code, status) in AwsErrorKind
