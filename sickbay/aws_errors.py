"""What kind of failure an AWS error code is, and what follows from it.

Called by `activities.aws_errors`, which turns these words into Temporal's. Source of the table: facts on remediation,
3.3 (error codes of the EC2 and Auto Scaling API references).
"""

from datetime import timedelta
from enum import StrEnum
from typing import Final


class AwsErrorKind(StrEnum):
    """Why a call failed."""

    THROTTLED = "throttled"
    TRANSIENT = "transient"
    CAPACITY = "capacity"
    """AWS has no machine of this type now; nothing is wrong with the call."""
    QUOTA = "quota"
    STATE = "state"
    """The instance is not in a state in which this can be done: look again."""
    GONE = "gone"
    POLICY = "policy"
    """Forbidden: no permission, or protected by somebody. We never lift a protection."""
    CALLER = "caller"
    """The call itself is wrong: a bug of ours or a wrong setting."""
    CREDENTIALS = "credentials"
    """Credentials that ran out and are renewed by the SDK."""
    UNKNOWN = "unknown"

    @property
    def final(self) -> bool:
        """Whether trying again cannot help."""
        return self in (AwsErrorKind.QUOTA, AwsErrorKind.POLICY, AwsErrorKind.CALLER, AwsErrorKind.GONE)

    @property
    def retry_after(self) -> timedelta | None:
        """How long to wait before the next try; None leaves it to the retry policy."""
        return _RETRY_AFTER.get(self)


_RETRY_AFTER: Final = {
    # Buckets of the EC2 API refill within seconds; many incidents at once share them.
    AwsErrorKind.THROTTLED: timedelta(seconds=10),
    # A slot of a reservation is cleaned for several minutes before it can be used again.
    AwsErrorKind.CAPACITY: timedelta(minutes=5),
}

_KINDS: Final = {
    AwsErrorKind.THROTTLED: (
        "EC2ThrottledException",
        "PriorRequestNotComplete",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    ),
    AwsErrorKind.TRANSIENT: (
        "InternalError",
        "InternalFailure",
        "RequestTimeout",
        "RequestTimeoutException",
        "ResourceContention",
        "ScalingActivityInProgress",
        "ServiceUnavailable",
        "Unavailable",
    ),
    AwsErrorKind.CAPACITY: (
        "InsufficientFreeAddressesInSubnet",
        "InsufficientHostCapacity",
        "InsufficientInstanceCapacity",
        "MaxFleetCountExceeded",
        "ReservationCapacityExceeded",
        "UnfulfillableCapacity",
    ),
    AwsErrorKind.QUOTA: ("InstanceLimitExceeded", "LimitExceeded", "VcpuLimitExceeded"),
    AwsErrorKind.STATE: ("IncorrectInstanceState", "IncorrectState"),
    AwsErrorKind.GONE: ("InvalidInstanceID.NotFound",),
    AwsErrorKind.POLICY: (
        "AccessDenied",
        "AccessDeniedException",
        "AuthFailure",
        "InvalidClientTokenId",
        "OperationNotPermitted",
        "OptInRequired",
        "SignatureDoesNotMatch",
        "UnauthorizedOperation",
        "UnrecognizedClientException",
    ),
    AwsErrorKind.CALLER: (
        "IdempotentParameterMismatch",
        "InvalidInstanceID.Malformed",
        "MissingParameter",
        "UnknownParameter",
        "ValidationError",
    ),
    AwsErrorKind.CREDENTIALS: ("ExpiredToken", "ExpiredTokenException", "RequestExpired"),
}

_KIND_OF_CODE: Final = {code: kind for kind, codes in _KINDS.items() for code in codes}

_SERVER_ERROR: Final = 500


def classify(code: str, http_status: int = 0) -> AwsErrorKind:
    """The kind of an error by its code, else by its HTTP status; UNKNOWN is retried, within the step's deadline."""
    if code in _KIND_OF_CODE:
        return _KIND_OF_CODE[code]
    if code.startswith("InvalidParameter"):
        return AwsErrorKind.CALLER
    if http_status >= _SERVER_ERROR:
        return AwsErrorKind.TRANSIENT
    return AwsErrorKind.UNKNOWN
