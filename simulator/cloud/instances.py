"""What one simulated instance is: its state, its machine, and what its status checks say.

The state machine itself is in `simulator.cloud.compute`.
"""

import re
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from sickbay.model import Frozen
from simulator.cloud.errors import malformed_id
from simulator.machine import Machine

INSTANCE_ID = re.compile(r"i-([0-9a-f]{8}|[0-9a-f]{17})")


class State(StrEnum):
    """EC2's instance states."""

    PENDING = "pending"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"
    STOPPING = "stopping"
    STOPPED = "stopped"

    @property
    def code(self) -> int:
        """EC2's number for it."""
        return {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}[self]

    @property
    def ending(self) -> bool:
        """Whether there is no way back from it."""
        return self in (State.SHUTTING_DOWN, State.TERMINATED)


class ScheduledEvent(Frozen):
    """Something that AWS has planned for an instance."""

    event_id: str
    code: str
    """instance-reboot, system-reboot, system-maintenance, instance-retirement or instance-stop."""
    description: str
    """Begins with `[Completed]` or `[Canceled]` once it is over."""
    not_before: datetime


class Timings(Frozen):
    """How long the cloud takes, in simulated seconds. Figures are what GPU instances commonly show."""

    pending: float = 20
    shutting_down: float = 40
    stopping: float = 40
    terminated_visible: float = 3600
    """EC2 shows a terminated instance for about an hour, then no longer knows its id."""
    group_check: float = 10
    """Between two looks of an Auto Scaling group at its members."""


@dataclass
class Instance:
    """One instance of the ledger."""

    instance_id: str
    instance_type: str
    zone: str
    tags: dict[str, str]
    machine: Machine
    state: State = State.PENDING
    instance_impaired_since: datetime | None = None
    system_impaired_since: datetime | None = None
    ebs_impaired_since: datetime | None = None
    efa_interfaces: int = 0
    events: list[ScheduledEvent] = field(default_factory=list)

    @property
    def node_name(self) -> str:
        """The name under which its kubelet registers."""
        return self.machine.node_name

    @property
    def provider_id(self) -> str:
        """As the AWS cloud provider writes it on a Node."""
        return f"aws:///{self.zone}/{self.instance_id}"


def check_instance_id(instance_id: str) -> None:
    """Raises AwsError for an id that cannot be one."""
    if not INSTANCE_ID.fullmatch(instance_id):
        raise malformed_id(instance_id)


class NodeNames:
    """Gives machines their node names: `pool-0`, `pool-1` and on, so that a scenario can name its nodes beforehand.

    With `reuse`, a new machine takes the name of one that is gone, as private DNS names come back in a real VPC.
    """

    def __init__(self, reuse: bool) -> None:
        self.reuse = reuse
        self._next: dict[str, int] = {}
        self._free: dict[str, list[str]] = {}

    def take(self, prefix: str) -> str:
        """A name for a new machine of this pool."""
        if self.reuse and self._free.get(prefix):
            return self._free[prefix].pop(0)
        number = self._next.get(prefix, 0)
        self._next[prefix] = number + 1
        return f"{prefix}-{number}"

    def give_back(self, prefix: str, name: str) -> None:
        """The machine of this name is gone."""
        self._free.setdefault(prefix, []).append(name)
