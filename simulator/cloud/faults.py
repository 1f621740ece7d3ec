"""What the cloud is told to refuse: throttling, missing capacity, missing rights, lost replies.

Set by tests and scenarios through `simulator.cloud.CloudServer`, asked by its front before each call over the wire.
Missing capacity also holds for launches that the simulator makes itself; the other faults are for callers outside.
"""

from datetime import datetime

from simulator.clock import Clock
from simulator.cloud.errors import AwsError, no_capacity, unauthorized
from simulator.cloud.wire import Service

THROTTLES = {
    Service.EC2: AwsError("RequestLimitExceeded", "Request limit exceeded.", status=503),
    Service.AUTOSCALING: AwsError("Throttling", "Rate exceeded"),
}


class Faults:
    """The refusals in force."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._throttled = 0
        self._throttled_action: str | None = None
        self._denied: set[str] = set()
        self._capacity_refused_until: datetime | None = None
        self._lost_replies: dict[str, int] = {}

    def throttle(self, calls: int, action: str | None = None) -> None:
        """Refuse the next `calls` EC2 and Auto Scaling calls, or those of one action only."""
        self._throttled, self._throttled_action = calls, action

    def deny(self, action: str) -> None:
        """Take the caller's right to one action, e.g. `TerminateInstances`."""
        self._denied.add(action)

    def refuse_capacity(self, until: datetime) -> None:
        """Launch nothing before this moment of the wall clock."""
        self._capacity_refused_until = until

    def lose_replies(self, action: str, calls: int = 1) -> None:
        """Do what the next `calls` of this action ask for, but cut the connection instead of answering."""
        self._lost_replies[action] = calls

    def check_call(self, service: Service, action: str) -> None:
        """Raises AwsError where this call is to be refused, and counts a throttled one."""
        if self._throttled > 0 and self._throttled_action in (None, action):
            self._throttled -= 1
            raise THROTTLES[service]
        if action in self._denied:
            raise unauthorized(action)

    def check_capacity(self, instance_type: str, zone: str) -> None:
        """Raises AwsError while capacity is refused."""
        if self._capacity_refused_until is not None and self._clock.now() < self._capacity_refused_until:
            raise no_capacity(instance_type, zone)

    def loses_reply(self, action: str) -> bool:
        """Whether this reply is to be lost; counts it."""
        left = self._lost_replies.get(action, 0)
        self._lost_replies[action] = max(left - 1, 0)
        return left > 0
