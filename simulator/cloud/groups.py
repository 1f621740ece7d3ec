"""Auto Scaling groups as AWS runs them: a lost member is noticed after a while, and its successor takes time.

moto replaces a member in the very call that ends it, so these calls never reach moto; its group objects are only the
store. Not simulated: lifecycle hooks, cooldowns, balancing over zones, warm pools.
"""

import logging

from moto.autoscaling.models import FakeAutoScalingGroup
from moto.autoscaling.models import InstanceState as MotoMember

from simulator.clock import Clock
from simulator.cloud.compute import Compute
from simulator.cloud.errors import AwsError
from simulator.cloud.faults import Faults
from simulator.cloud.instances import State, Timings
from simulator.cloud.store import MotoStore

log = logging.getLogger(__name__)

IN_SERVICE = "InService"
TERMINATING = "Terminating"
UNHEALTHY = "Unhealthy"


class Groups:
    """All Auto Scaling groups, and the loop that keeps their counts."""

    def __init__(self, clock: Clock, store: MotoStore, compute: Compute, faults: Faults, timings: Timings) -> None:
        self._clock = clock
        self._store = store
        self._compute = compute
        self._faults = faults
        self._timings = timings

    async def run(self) -> None:
        """Look at every group again and again."""
        while True:
            await self._clock.sleep(self._timings.group_check)
            async with self._store.turn:
                for group in self._store.groups():
                    self._end_unhealthy(group)
                    self._drop_ended(group)
                    self._fill(group)

    def terminate_member(self, instance_id: str, decrement: bool) -> FakeAutoScalingGroup:
        """End one member; its successor comes by itself unless `decrement`. Raises AwsError for no member, or below
        the group's minimum."""
        group, member = self._member(instance_id)
        desired, minimum = group.desired_capacity or 0, group.min_size or 0
        if decrement and desired <= minimum:
            raise AwsError(
                "ValidationError",
                f"desiredSize equals minSize ({minimum}). Ending an instance without a successor would violate group's"
                " min size constraint.",
            )
        if decrement:
            group.desired_capacity = desired - 1
        self._end(member)
        return group

    def set_health(self, instance_id: str, status: str) -> None:
        """Declare a member healthy or not; an unhealthy one is replaced at the next look. Raises AwsError for no
        member."""
        _, member = self._member(instance_id)
        member.health_status = status

    def _member(self, instance_id: str) -> tuple[FakeAutoScalingGroup, MotoMember]:
        for group, member in self._store.members():
            if member.instance_id == instance_id:
                return group, member
        raise AwsError(
            "ValidationError", f"Instance Id not found - No managed instance found for instance ID: {instance_id}"
        )

    def _end(self, member: MotoMember) -> None:
        member.lifecycle_state = TERMINATING
        # Termination protection guards against EC2's own call alone; a group ends its members all the same.
        self._compute.terminate(self._compute.get(member.instance_id), override_protection=True)

    def _end_unhealthy(self, group: FakeAutoScalingGroup) -> None:
        if suspended(group) & {"ReplaceUnhealthy", "Terminate"}:
            return
        for member in group.instance_states:
            if member.lifecycle_state != IN_SERVICE:
                continue
            # EC2's health check: a member in any state but these two is unhealthy.
            state = self._compute.get(member.instance_id).state
            if member.health_status == UNHEALTHY or state not in (State.PENDING, State.RUNNING):
                self._end(member)

    def _drop_ended(self, group: FakeAutoScalingGroup) -> None:
        group.instance_states = [
            member
            for member in group.instance_states
            if member.lifecycle_state != TERMINATING
            or self._compute.get(member.instance_id).state is not State.TERMINATED
        ]

    def _fill(self, group: FakeAutoScalingGroup) -> None:
        missing = (group.desired_capacity or 0) - len(group.active_instances())
        if missing <= 0 or "Launch" in suspended(group):
            return
        try:
            self._faults.check_capacity(group.instance_type, group.availability_zones[0])
        except AwsError as refused:
            log.info("group %s waits for %d members: %s", group.name, missing, refused.message)
            return
        group.replace_autoscaling_group_instances(missing, group.get_propagated_tags())
        self._compute.adopt()


def suspended(group: FakeAutoScalingGroup) -> set[str]:
    """The names of the group's suspended processes."""
    return {process["ProcessName"] for process in group.suspended_processes}
