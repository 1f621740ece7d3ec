"""EC2: how an instance stands, rebooting it from outside, ending it."""

from datetime import datetime
from enum import StrEnum

from sickbay.model import Frozen


class InstanceState(StrEnum):
    """EC2's own states, and GONE for an id that EC2 no longer knows."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"
    GONE = "gone"


class InstanceRef(Frozen):
    """One instance."""

    instance_id: str


class InstanceStatus(Frozen):
    """One look at an instance."""

    state: InstanceState
    system_status: str = ""
    instance_status: str = ""
    impaired_since: datetime | None = None
    events: tuple[str, ...] = ()
    """Scheduled events that are not finished, in words."""


class InstanceCall(Frozen):
    """Reboot or terminate one instance in the name of an incident's rung."""

    instance_id: str
    incident_id: str
    attempt: int


class InstanceCallReport(Frozen):
    """What came of it."""

    requested: bool
    already: bool = False
    """The goal was reached before: the instance is ending or gone."""
