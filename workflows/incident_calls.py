"""The activities of an incident, each with its timeouts, retries and the summary that people read on the timeline.

Called by the incident workflow and its rungs. Here are those on the cluster; those on the host, on the pods that hold
its GPUs and on the node's owner have their own modules, and all of them are one object to their callers. No decisions.
What a failed activity means is in `outside`.
"""

from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.workflow import ActivityCancellationType

from activities.drain import DrainActivities, DrainRequest
from activities.incidents import HistoryQuery, IncidentActivities, PastIncidents
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
from sickbay.nodes import DrainGoal, DrainReport, NodeSnapshot
from workflows import policies
from workflows.incident_client_calls import ClientCalls
from workflows.incident_host_calls import HostCalls
from workflows.incident_owner_calls import OwnerCalls
from workflows.outside import OutsideError, told


class IncidentCalls(HostCalls, ClientCalls, OwnerCalls):
    """All that one incident asks of the world."""

    async def look(self) -> NodeSnapshot:
        """One look at the node."""
        return await told(
            workflow.execute_activity_method(
                NodeActivities.observe_node,
                NodeQuery(node=self._node),
                **policies.LOOK,
                summary=f"look at {self._node.name}",
            )
        )

    async def contain(self) -> Containment:
        """Block new work on the node."""
        return await told(
            workflow.execute_activity_method(
                NodeActivities.contain_node,
                ContainRequest(node=self._node, incident_id=self._incident_id, taint=self._policy.taint),
                **policies.LOOK,
                summary=f"block new work on {self._node.name}",
            )
        )

    async def release(self, *, keep_cordon: bool, verified_boot: str = "") -> Release:
        """Undo our marks; a node that is well in this boot needs no admission for it."""
        request = ReleaseRequest(
            node=self._node, incident_id=self._incident_id, keep_cordon=keep_cordon, verified_boot=verified_boot
        )
        return await told(
            workflow.execute_activity_method(
                NodeActivities.release_node,
                request,
                **policies.UNDO,
                summary=f"undo our marks on {self._node.name}",
            )
        )

    def start_drain(self, goal: DrainGoal) -> "workflow.ActivityHandle[DrainReport]":
        """Start emptying the node; cancel the handle to stop, and then wait for it."""
        deadline = self._policy.drain.deadline
        return workflow.start_activity_method(
            DrainActivities.drain_node,
            DrainRequest(node=self._node, incident_id=self._incident_id, goal=goal, policy=self._policy.drain),
            **policies.waiting(deadline, policies.ACT),
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=f"drain {self._node.name} of {goal}",
        )

    async def wait_for_boot(self, previous_boot_id: str, deadline: timedelta) -> NodeSnapshot:
        """Wait for another boot; at the deadline, how the node stood then."""
        return await told(
            workflow.execute_activity_method(
                NodeActivities.wait_for_boot,
                BootWait(node=self._node, previous_boot_id=previous_boot_id, expected_gpus=None, deadline=deadline),
                **policies.waiting(deadline, policies.PATIENT),
                summary="wait for the new boot",
            )
        )

    async def observe_pool(self) -> PoolSnapshot:
        """All nodes of the node's pool."""
        return await told(
            workflow.execute_activity_method(
                NodeActivities.observe_pool,
                PoolQuery(cluster=self._node.cluster, pool=self._node.pool),
                **policies.LOOK,
                summary=f"nodes of pool {self._node.pool}",
            )
        )

    async def wait_for_successor(
        self, asked_at: datetime, known_uids: tuple[str, ...], expected_gpus: int | None, deadline: timedelta
    ) -> Succession:
        """Wait until the old node has left and a new one works."""
        return await told(
            workflow.execute_activity_method(
                NodeActivities.wait_for_successor,
                SuccessorWait(
                    node=self._node,
                    asked_at=asked_at,
                    known_uids=known_uids,
                    expected_gpus=expected_gpus,
                    deadline=deadline,
                ),
                **policies.waiting(deadline, policies.PATIENT),
                summary="wait for the successor",
            )
        )

    async def past_incidents(self, window: timedelta) -> PastIncidents:
        """Closed incidents of the machine."""
        return await told(
            workflow.execute_activity_method(
                IncidentActivities.past_incidents,
                HistoryQuery(cluster=self._node.cluster, machine=self._node.machine, window=window),
                **policies.COURTESY,
                summary=f"past incidents of {self._node.machine}",
            )
        )

    async def courtesy(self, reason: str, message: str, *, warning: bool = True) -> None:
        """An Event on the node, for people who look with kubectl; its failure changes nothing."""
        event = NodeEvent(
            node=self._node, incident_id=self._incident_id, reason=reason, message=message, warning=warning
        )
        try:
            await told(
                workflow.execute_activity_method(
                    NodeActivities.record_event,
                    event,
                    **policies.COURTESY,
                    summary=f"Event {reason}",
                )
            )
        except OutsideError as failed:
            workflow.logger.warning("no Event was written: %s", failed)
