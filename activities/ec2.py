"""EC2: how an instance stands, rebooting it from outside, ending it.

Called by the incident workflow on the controller's queue. Which of these to do, and whether the node's owner allows
it, is decided before; here each call looks first, acts once, and never lifts a protection. Synchronous, since boto3
is: the worker runs them in its thread pool (facts: Temporal, 1.6).
"""

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from botocore.exceptions import ClientError
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.aws_errors import aws_call, kind_of
from activities.ec2_words import words_of
from sickbay.aws_errors import AwsErrorKind
from sickbay.cloud_words import CheckedPart, ScheduledEvent
from sickbay.model import Frozen
from sickbay.names import DOMAIN

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import InstanceStatusTypeDef, InstanceTypeDef

TAG_REBOOT: Final = f"{DOMAIN}/reboot"
"""Tag on an instance: incident and attempt of the last reboot asked for. RebootInstances has no client token, so this
is what keeps a retried activity from rebooting twice."""


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
    decided_at: datetime | None = None
    """When the incident decided on it. All incidents of one machine bear one id, and each counts its attempts from 1,
    so that an older incident's tag would pass for this one's."""

    @property
    def key(self) -> str:
        """What makes two calls the same act; at most 256 characters, as a tag's value."""
        decided = f"/{self.decided_at.isoformat()}" if self.decided_at else ""
        return f"{self.incident_id}/{self.attempt}{decided}"[-256:]


class InstanceCallReport(Frozen):
    """What came of it."""

    requested: bool
    already: bool = False
    """The goal was reached before: the instance is ending or gone."""


_ENDING: Final = (InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED, InstanceState.GONE)


class Ec2Activities:
    """EC2 calls over one injected client."""

    def __init__(self, client: "EC2Client") -> None:
        self._client = client

    @activity.defn
    def observe_instance(self, instance: InstanceRef) -> InstanceStatus:
        """How the instance stands: its state, status checks and unfinished scheduled events."""
        described = self._describe(instance.instance_id)
        if described is None:
            return InstanceStatus(state=InstanceState.GONE)
        status = self._status(instance.instance_id)
        if status is None:
            return InstanceStatus(state=_state(described))
        said = words_of(status)
        words = {check.part: check.status for check in said.checks}
        since = [
            check.impaired_since for check in said.checks if check.impaired_since and check.part is not CheckedPart.EBS
        ]
        return InstanceStatus(
            state=_state(described),
            system_status=words.get(CheckedPart.SYSTEM, ""),
            instance_status=words.get(CheckedPart.INSTANCE, ""),
            impaired_since=min(since, default=None),
            events=tuple(_in_words(event) for event in said.events if not event.finished),
        )

    @activity.defn
    def reboot_instance(self, call: InstanceCall) -> InstanceCallReport:
        """Ask EC2 to reboot the instance, once per incident and attempt. The proof is a new boot id, not this.

        Raises ApplicationError, non-retryable, if the instance is ending, stopped or gone.
        """
        described = self._describe(call.instance_id)
        state = InstanceState.GONE if described is None else _state(described)
        if described is None or state not in (InstanceState.PENDING, InstanceState.RUNNING):
            raise ApplicationError(
                f"instance {call.instance_id} is {state} and cannot be rebooted", type="aws-state", non_retryable=True
            )
        intent = call.key
        if any(tag.get("Key") == TAG_REBOOT and tag.get("Value") == intent for tag in described.get("Tags", [])):
            return InstanceCallReport(requested=False, already=True)
        with aws_call(f"tag instance {call.instance_id} before its reboot"):
            self._client.create_tags(Resources=[call.instance_id], Tags=[{"Key": TAG_REBOOT, "Value": intent}])
        with aws_call(f"reboot instance {call.instance_id}"):
            self._reboot(call.instance_id, intent)
        return InstanceCallReport(requested=True)

    @activity.defn
    def terminate_instance(self, call: InstanceCall) -> InstanceCallReport:
        """Ask EC2 to end the instance; one that is ending or gone is left as it is.

        Raises ApplicationError, non-retryable, if the instance is protected or we have no permission.
        """
        described = self._describe(call.instance_id)
        if described is None or _state(described) in _ENDING:
            return InstanceCallReport(requested=False, already=True)
        try:
            with aws_call(f"terminate instance {call.instance_id}"):
                # One id a call: a protected instance would fail its neighbours in the same zone.
                self._client.terminate_instances(InstanceIds=[call.instance_id])
        except ApplicationError as error:
            if error.type == f"aws-{AwsErrorKind.GONE}":
                return InstanceCallReport(requested=False, already=True)
            raise
        return InstanceCallReport(requested=True)

    def _reboot(self, instance_id: str, intent: str) -> None:
        try:
            self._client.reboot_instances(InstanceIds=[instance_id])
        except ClientError:
            # EC2 answered no, so nothing was rebooted and a retry must ask again. Without an answer nobody knows, the
            # tag stays, and the missing proof moves the ladder on.
            self._client.delete_tags(Resources=[instance_id], Tags=[{"Key": TAG_REBOOT, "Value": intent}])
            raise

    def _describe(self, instance_id: str) -> "InstanceTypeDef | None":
        with aws_call(f"look at instance {instance_id}"):
            try:
                answer = self._client.describe_instances(InstanceIds=[instance_id])
            except ClientError as error:
                if kind_of(error) is AwsErrorKind.GONE:
                    return None
                raise
        found = [instance for group in answer["Reservations"] for instance in group.get("Instances", [])]
        return found[0] if found else None

    def _status(self, instance_id: str) -> "InstanceStatusTypeDef | None":
        with aws_call(f"read the status checks of instance {instance_id}"):
            try:
                answer = self._client.describe_instance_status(InstanceIds=[instance_id], IncludeAllInstances=True)
            except ClientError as error:
                if kind_of(error) is AwsErrorKind.GONE:
                    return None
                raise
        return answer["InstanceStatuses"][0] if answer["InstanceStatuses"] else None


def _state(instance: "InstanceTypeDef") -> InstanceState:
    return InstanceState(instance["State"]["Name"])


def _in_words(event: ScheduledEvent) -> str:
    return f"{event.code or 'event'}: {event.description} (not before {event.not_before or 'unknown'})"
