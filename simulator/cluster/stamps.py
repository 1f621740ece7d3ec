"""Time stamps and conditions as Kubernetes writes them."""

from collections.abc import Mapping
from datetime import UTC, datetime


def stamp(moment: datetime) -> str:
    """To the second, as metadata and conditions have it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_stamp(moment: datetime) -> str:
    """To the microsecond, as leases have it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def condition(kind: str, status: bool | str, now: datetime, reason: str, message: str = "") -> Mapping[str, str]:
    """A condition whose status has just changed."""
    return {
        "type": kind,
        "status": str(status),
        "reason": reason,
        "message": message,
        "lastTransitionTime": stamp(now),
    }
