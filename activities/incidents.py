"""What Temporal itself knows: past incidents of a machine, and which holders of permits still run."""

from datetime import datetime, timedelta

from sickbay.faults import Rung
from sickbay.incident import Outcome
from sickbay.model import Frozen


class HistoryQuery(Frozen):
    """Closed incidents of one machine inside a window."""

    cluster: str
    machine: str
    window: timedelta


class PastIncident(Frozen):
    """One closed incident."""

    outcome: Outcome
    rung: Rung
    closed_at: datetime


class PastIncidents(Frozen):
    """Newest first."""

    incidents: tuple[PastIncident, ...]


class HoldersQuery(Frozen):
    """Workflow ids that hold or await a permit."""

    holders: tuple[str, ...]


class HoldersGone(Frozen):
    """Those of them that no longer run."""

    gone: tuple[str, ...]
