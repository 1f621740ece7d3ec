"""EC2 Auto Scaling: whose member an instance is, and replacing it through its group.

Called by the incident workflow on the controller's queue for nodes that a group owns, EKS managed node groups among
them. The group drains nothing by itself: the workflow has done that before. Sizes are never touched: the group keeps
its desired capacity and puts a new instance in the old one's place.
"""

from typing import TYPE_CHECKING, Final

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.aws_errors import aws_call
from sickbay.model import Frozen

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_autoscaling.type_defs import AutoScalingInstanceDetailsTypeDef

NEEDED_PROCESSES: Final = ("Launch", "Terminate", "ReplaceUnhealthy")
"""Processes of a group without which no replacement comes (facts: remediation, 3.5)."""


class MembershipQuery(Frozen):
    """One instance."""

    instance_id: str


class Membership(Frozen):
    """The group of an instance; empty if it has none."""

    group: str = ""
    suspended: tuple[str, ...] = ()
    """Suspended processes of the group without which no replacement comes (Launch, Terminate, ReplaceUnhealthy)."""


class MemberReplacement(Frozen):
    """End a member so that its group puts another in its place."""

    instance_id: str
    group: str
    incident_id: str
    attempt: int


class MemberReplacementReport(Frozen):
    """What came of it."""

    requested: bool
    already: bool = False


class AutoScalingActivities:
    """Auto Scaling calls over one injected client."""

    def __init__(self, client: "AutoScalingClient") -> None:
        self._client = client

    @activity.defn
    def observe_membership(self, query: MembershipQuery) -> Membership:
        """The group of the instance, and which of the processes that we need are suspended there."""
        member = self._member(query.instance_id)
        if member is None:
            return Membership()
        group = member["AutoScalingGroupName"]
        return Membership(group=group, suspended=self._suspended(group))

    @activity.defn
    def replace_member(self, replacement: MemberReplacement) -> MemberReplacementReport:
        """End the instance through its group, keeping the group's size, so that another one comes.

        Raises ApplicationError, non-retryable, if the instance is now in another group, if the group would not
        replace it, or if AWS forbids the call.
        """
        member = self._member(replacement.instance_id)
        if member is None or member["LifecycleState"].startswith("Terminat"):
            return MemberReplacementReport(requested=False, already=True)
        if member["AutoScalingGroupName"] != replacement.group:
            raise ApplicationError(
                f"instance {replacement.instance_id} is now in group {member['AutoScalingGroupName']}, "
                f"not in {replacement.group}",
                type="aws-state",
                non_retryable=True,
            )
        if suspended := self._suspended(replacement.group):
            raise ApplicationError(
                f"group {replacement.group} has suspended {', '.join(suspended)}: no replacement would come; resume it",
                type="aws-policy",
                non_retryable=True,
            )
        with aws_call(f"replace instance {replacement.instance_id} in group {replacement.group}"):
            self._client.terminate_instance_in_auto_scaling_group(
                InstanceId=replacement.instance_id, ShouldDecrementDesiredCapacity=False
            )
        return MemberReplacementReport(requested=True)

    def _member(self, instance_id: str) -> "AutoScalingInstanceDetailsTypeDef | None":
        with aws_call(f"look up the group of instance {instance_id}"):
            found = self._client.describe_auto_scaling_instances(InstanceIds=[instance_id])["AutoScalingInstances"]
        return found[0] if found else None

    def _suspended(self, group: str) -> tuple[str, ...]:
        with aws_call(f"look at group {group}"):
            found = self._client.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"]
        suspended = {process.get("ProcessName", "") for one in found for process in one.get("SuspendedProcesses", [])}
        return tuple(process for process in NEEDED_PROCESSES if process in suspended)
