"""The activities of an incident, each with its timeouts, retries and the summary that people read on the timeline.

Called by the incident workflow and its rungs. It turns what Temporal raises into the two things that matter here: the
node's own worker is silent (`HostSilentError`), or the outside refused or failed (`OutsideError`). No decisions.
"""

from collections.abc import Awaitable
from datetime import datetime, timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType, is_cancelled_exception
from temporalio.exceptions import TimeoutError as ActivityTimeoutError
from temporalio.workflow import ActivityCancellationType

from activities.autoscaling import (
    AutoScalingActivities,
    MemberReplacement,
    MemberReplacementReport,
    Membership,
    MembershipQuery,
)
from activities.drain import DrainActivities, DrainRequest
from activities.ec2 import Ec2Activities, InstanceCall, InstanceCallReport, InstanceRef, InstanceStatus
from activities.host import (
    HostActivities,
    ProbeRequest,
    RebootReport,
    RebootRequest,
    ResetReport,
    ResetRequest,
)
from activities.incidents import HistoryQuery, IncidentActivities, PastIncidents
from activities.karpenter import (
    ClaimDeletion,
    ClaimDeletionReport,
    KarpenterActivities,
    Protection,
    ProtectRequest,
)
from activities.nodes import (
    BootWait,
    Containment,
    ContainRequest,
    NodeActivities,
    NodeEvent,
    NodeQuery,
    PoolQuery,
    PoolSnapshot,
    Release,
    ReleaseRequest,
    Succession,
    SuccessorWait,
)
from sickbay.incident import Intent
from sickbay.names import node_queue
from sickbay.nodes import DrainGoal, DrainReport, HostProbe, NodeRef, NodeSnapshot
from sickbay.policy.model import IncidentPolicy
from workflows import policies

T = TypeVar("T")


class HostSilentError(Exception):
    """Nobody serves the node's queue, or its worker died under the activity."""


class OutsideError(Exception):
    """An activity failed for good; `final` if the outside refused, so that no later try can help."""

    def __init__(self, message: str, *, final: bool) -> None:
        super().__init__(message)
        self.final = final


class IncidentCalls:
    """All that one incident asks of the world."""

    def __init__(self, incident_id: str, node: NodeRef, policy: IncidentPolicy) -> None:
        self._incident_id = incident_id
        self._node = node
        self._policy = policy

    async def look(self) -> NodeSnapshot:
        """One look at the node."""
        return await _told(
            workflow.execute_activity_method(
                NodeActivities.observe_node,
                NodeQuery(node=self._node),
                start_to_close_timeout=policies.CALL,
                schedule_to_close_timeout=policies.LOOK_DEADLINE,
                retry_policy=policies.PATIENT,
                summary=f"look at {self._node.name}",
            )
        )

    async def contain(self) -> Containment:
        """Block new work on the node."""
        return await _told(
            workflow.execute_activity_method(
                NodeActivities.contain_node,
                ContainRequest(node=self._node, incident_id=self._incident_id, taint=self._policy.taint),
                start_to_close_timeout=policies.CALL,
                schedule_to_close_timeout=policies.LOOK_DEADLINE,
                retry_policy=policies.PATIENT,
                summary=f"block new work on {self._node.name}",
            )
        )

    async def release(self, *, keep_cordon: bool) -> Release:
        """Undo our marks."""
        request = ReleaseRequest(node=self._node, incident_id=self._incident_id, keep_cordon=keep_cordon)
        return await _told(
            workflow.execute_activity_method(
                NodeActivities.release_node,
                request,
                start_to_close_timeout=policies.CALL,
                schedule_to_close_timeout=policies.UNDO_DEADLINE,
                retry_policy=policies.PATIENT,
                summary=f"undo our marks on {self._node.name}",
            )
        )

    async def protect(self) -> Protection:
        """Keep Karpenter from ending the node while it is empty."""
        return await _told(
            workflow.execute_activity_method(
                KarpenterActivities.protect_node,
                ProtectRequest(node=self._node, incident_id=self._incident_id),
                start_to_close_timeout=policies.CALL,
                schedule_to_close_timeout=policies.LOOK_DEADLINE,
                retry_policy=policies.PATIENT,
                summary="keep Karpenter's hands off the node",
            )
        )

    async def unprotect(self) -> Protection:
        """Give the node back to Karpenter's own disruption."""
        return await _told(
            workflow.execute_activity_method(
                KarpenterActivities.unprotect_node,
                ProtectRequest(node=self._node, incident_id=self._incident_id),
                start_to_close_timeout=policies.CALL,
                schedule_to_close_timeout=policies.UNDO_DEADLINE,
                retry_policy=policies.PATIENT,
                summary="give the node back to Karpenter",
            )
        )

    def start_drain(self, goal: DrainGoal) -> "workflow.ActivityHandle[DrainReport]":
        """Start emptying the node; cancel the handle to stop, and then wait for it."""
        deadline = self._policy.drain.deadline
        return workflow.start_activity_method(
            DrainActivities.drain_node,
            DrainRequest(node=self._node, incident_id=self._incident_id, goal=goal, policy=self._policy.drain),
            start_to_close_timeout=deadline + policies.WAIT_SLACK,
            schedule_to_close_timeout=2 * deadline + policies.WAIT_SLACK,
            heartbeat_timeout=policies.WAIT_HEARTBEAT,
            retry_policy=policies.ACT,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=f"drain {self._node.name} of {goal}",
        )

    async def probe(self, expected_gpus: int | None, node: NodeRef | None = None) -> HostProbe:
        """One full pass of the health layers on the node, or on its successor."""
        name = (node or self._node).name
        return await _told(
            workflow.execute_activity_method(
                HostActivities.probe_host,
                ProbeRequest(incident_id=self._incident_id, expected_gpus=expected_gpus),
                task_queue=node_queue(name),
                schedule_to_start_timeout=self._policy.host_pickup,
                start_to_close_timeout=timedelta(minutes=2),
                heartbeat_timeout=policies.HOST_HEARTBEAT,
                retry_policy=policies.HOST_ONCE,
                summary=f"probe {name}",
            )
        )

    async def reset_gpus(self, intent: Intent, pcis: tuple[str, ...]) -> ResetReport:
        """Reset GPUs, their clients stopped before and restored after."""
        return await _told(
            workflow.execute_activity_method(
                HostActivities.reset_gpus,
                ResetRequest(incident_id=self._incident_id, attempt=intent.attempt, boot_id=intent.boot_id, pcis=pcis),
                task_queue=node_queue(self._node.name),
                schedule_to_start_timeout=self._policy.host_pickup,
                start_to_close_timeout=self._policy.reset_gpu.deadline,
                heartbeat_timeout=policies.HOST_HEARTBEAT,
                retry_policy=policies.HOST_ONCE,
                cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                summary=f"reset {', '.join(pcis) or 'all GPUs'}",
            )
        )

    async def reboot_host(self, intent: Intent) -> RebootReport:
        """Ask the node itself to reboot."""
        return await _told(
            workflow.execute_activity_method(
                HostActivities.reboot_host,
                RebootRequest(incident_id=self._incident_id, attempt=intent.attempt, boot_id=intent.boot_id),
                task_queue=node_queue(self._node.name),
                schedule_to_start_timeout=self._policy.host_pickup,
                start_to_close_timeout=timedelta(minutes=1),
                retry_policy=policies.HOST_ONCE,
                summary=f"reboot {self._node.name} from inside",
            )
        )

    async def reboot_instance(self, intent: Intent) -> InstanceCallReport:
        """Ask EC2 to reboot the instance."""
        return await _told(
            workflow.execute_activity_method(
                Ec2Activities.reboot_instance,
                InstanceCall(instance_id=self._node.machine, incident_id=self._incident_id, attempt=intent.attempt),
                start_to_close_timeout=policies.CALL,
                schedule_to_close_timeout=policies.ACT_DEADLINE,
                retry_policy=policies.ACT,
                summary=f"reboot {self._node.machine} from outside",
            )
        )

    async def wait_for_boot(self, previous_boot_id: str, deadline: timedelta) -> NodeSnapshot:
        """Wait for another boot; at the deadline, how the node stood then."""
        return await _told(
            workflow.execute_activity_method(
                NodeActivities.wait_for_boot,
                BootWait(node=self._node, previous_boot_id=previous_boot_id, expected_gpus=None, deadline=deadline),
                start_to_close_timeout=deadline + policies.WAIT_SLACK,
                heartbeat_timeout=policies.WAIT_HEARTBEAT,
                retry_policy=policies.PATIENT,
                schedule_to_close_timeout=2 * deadline + policies.WAIT_SLACK,
                summary="wait for the new boot",
            )
        )

    async def observe_pool(self) -> PoolSnapshot:
        """All nodes of the node's pool."""
        return await _told(
            workflow.execute_activity_method(
                NodeActivities.observe_pool,
                PoolQuery(cluster=self._node.cluster, pool=self._node.pool),
                start_to_close_timeout=policies.CALL,
                schedule_to_close_timeout=policies.LOOK_DEADLINE,
                retry_policy=policies.PATIENT,
                summary=f"nodes of pool {self._node.pool}",
            )
        )

    async def membership(self) -> Membership:
        """The Auto Scaling group of the instance."""
        return await _told(
            workflow.execute_activity_method(
                AutoScalingActivities.observe_membership,
                MembershipQuery(instance_id=self._node.machine),
                start_to_close_timeout=policies.CALL,
                schedule_to_close_timeout=policies.ACT_DEADLINE,
                retry_policy=policies.ACT,
                summary=f"group of {self._node.machine}",
            )
        )

    async def replace_member(self, intent: Intent, group: str) -> MemberReplacementReport:
        """Have the group put another instance in this one's place."""
        return await _told(
            workflow.execute_activity_method(
                AutoScalingActivities.replace_member,
                MemberReplacement(
                    instance_id=self._node.machine,
                    group=group,
                    incident_id=self._incident_id,
                    attempt=intent.attempt,
                ),
                start_to_close_timeout=policies.CALL,
                schedule_to_close_timeout=policies.ACT_DEADLINE,
                retry_policy=policies.ACT,
                summary=f"replace {self._node.machine} in {group}",
            )
        )

    async def delete_claim(self, name: str, uid: str) -> ClaimDeletionReport:
        """Have Karpenter replace the node by deleting its claim."""
        return await _told(
            workflow.execute_activity_method(
                KarpenterActivities.delete_node_claim,
                ClaimDeletion(node=self._node, incident_id=self._incident_id, claim_name=name, claim_uid=uid),
                start_to_close_timeout=policies.CALL,
                schedule_to_close_timeout=policies.ACT_DEADLINE,
                retry_policy=policies.ACT,
                summary=f"delete NodeClaim {name}",
            )
        )

    async def wait_for_successor(
        self, asked_at: datetime, known_uids: tuple[str, ...], expected_gpus: int | None, deadline: timedelta
    ) -> Succession:
        """Wait until the old node has left and a new one works."""
        return await _told(
            workflow.execute_activity_method(
                NodeActivities.wait_for_successor,
                SuccessorWait(
                    node=self._node,
                    asked_at=asked_at,
                    known_uids=known_uids,
                    expected_gpus=expected_gpus,
                    deadline=deadline,
                ),
                start_to_close_timeout=deadline + policies.WAIT_SLACK,
                heartbeat_timeout=policies.WAIT_HEARTBEAT,
                retry_policy=policies.PATIENT,
                schedule_to_close_timeout=2 * deadline + policies.WAIT_SLACK,
                summary="wait for the successor",
            )
        )

    async def instance(self) -> InstanceStatus:
        """How the instance stands in EC2."""
        return await _told(
            workflow.execute_activity_method(
                Ec2Activities.observe_instance,
                InstanceRef(instance_id=self._node.machine),
                start_to_close_timeout=policies.CALL,
                schedule_to_close_timeout=policies.ACT_DEADLINE,
                retry_policy=policies.ACT,
                summary=f"look at {self._node.machine}",
            )
        )

    async def past_incidents(self, window: timedelta) -> PastIncidents:
        """Closed incidents of the machine."""
        return await _told(
            workflow.execute_activity_method(
                IncidentActivities.past_incidents,
                HistoryQuery(cluster=self._node.cluster, machine=self._node.machine, window=window),
                start_to_close_timeout=policies.CALL,
                schedule_to_close_timeout=policies.COURTESY_DEADLINE,
                retry_policy=policies.COURTESY,
                summary=f"past incidents of {self._node.machine}",
            )
        )

    async def courtesy(self, reason: str, message: str, *, warning: bool = True) -> None:
        """An Event on the node, for people who look with kubectl; its failure changes nothing."""
        event = NodeEvent(
            node=self._node, incident_id=self._incident_id, reason=reason, message=message, warning=warning
        )
        try:
            await _told(
                workflow.execute_activity_method(
                    NodeActivities.record_event,
                    event,
                    start_to_close_timeout=policies.CALL,
                    schedule_to_close_timeout=policies.COURTESY_DEADLINE,
                    retry_policy=policies.COURTESY,
                    summary=f"Event {reason}",
                )
            )
        except OutsideError as failed:
            workflow.logger.warning("no Event was written: %s", failed)


async def _told(call: Awaitable[T]) -> T:
    """The call's result, its failure told in the words of this module; a cancellation stays one."""
    try:
        return await call
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        raise failure_of(error) from error


def failure_of(error: ActivityError) -> HostSilentError | OutsideError:
    """What a failed activity means to an incident."""
    cause = error.cause
    if isinstance(cause, ActivityTimeoutError):
        if cause.type in (TimeoutType.SCHEDULE_TO_START, TimeoutType.HEARTBEAT):
            return HostSilentError(f"{error.activity_type}: the worker did not answer")
        return OutsideError(f"{error.activity_type} did not end in time", final=False)
    final = isinstance(cause, ApplicationError) and cause.non_retryable
    return OutsideError(f"{error.activity_type}: {cause or error}", final=final)
