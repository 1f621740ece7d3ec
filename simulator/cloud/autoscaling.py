"""The Auto Scaling calls that the front answers itself: those by which a member ends."""

import uuid
from datetime import UTC, datetime

from simulator.cloud.groups import Groups
from simulator.cloud.wire import Call, answer, element


class AutoScalingActions:
    """Auto Scaling's ending calls over the groups."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def handle(self, call: Call) -> bytes | None:
        """The answer to a call; None where moto is to answer. Raises AwsError for a refusal."""
        match call.action:
            case "TerminateInstanceInAutoScalingGroup":
                return self._terminate(call)
            case "SetInstanceHealth":
                self._groups.set_health(call.text("InstanceId"), call.text("HealthStatus"))
                return answer(call)
            case _:
                return None

    def _terminate(self, call: Call) -> bytes:
        instance_id = call.text("InstanceId")
        group = self._groups.terminate_member(instance_id, decrement=call.flag("ShouldDecrementDesiredCapacity"))
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        activity = element(
            "Activity",
            element("ActivityId", str(uuid.uuid4())),
            element("AutoScalingGroupName", group.name),
            element("Description", f"Terminating EC2 instance: {instance_id}"),
            element(
                "Cause", f"At {now} instance {instance_id} was taken out of service in response to a user request."
            ),
            element("StartTime", now),
            element("StatusCode", "InProgress"),
            element("Progress", "0"),
        )
        return answer(call, activity)
