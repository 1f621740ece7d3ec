"""The activities of an incident on the pods that hold the node's GPUs; see `incident_calls`."""

from datetime import datetime

from temporalio import workflow
from temporalio.workflow import ActivityCancellationType

from activities.gpu_client_pods import (
    GpuClientPodActivities,
    PauseReport,
    PauseRequest,
    RestartReport,
    RestartRequest,
    ResumeReport,
    ResumeRequest,
)
from workflows import policies
from workflows.outside import Outside, told


class ClientCalls(Outside):
    """What one incident asks of the pods that hold the node's GPUs."""

    async def pause_gpu_clients(self) -> PauseReport:
        """Stop them; at the deadline, which stayed."""
        clients = self._policy.gpu_clients
        return await told(
            workflow.execute_activity_method(
                GpuClientPodActivities.pause_gpu_clients,
                PauseRequest(node=self._node, incident_id=self._incident_id, policy=clients),
                **policies.waiting(clients.deadline, policies.ACT),
                cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                summary=f"pause the GPU clients on {self._node.name}",
            )
        )

    async def resume_gpu_clients(self, expected: tuple[str, ...]) -> ResumeReport:
        """Put back what was paused, if anything was; at the deadline, what does not serve yet."""
        deadline = self._policy.gpu_clients.deadline
        return await told(
            workflow.execute_activity_method(
                GpuClientPodActivities.resume_gpu_clients,
                ResumeRequest(node=self._node, incident_id=self._incident_id, expected=expected, deadline=deadline),
                start_to_close_timeout=deadline + policies.WAIT_SLACK,
                schedule_to_close_timeout=policies.UNDO_DEADLINE,
                heartbeat_timeout=policies.WAIT_HEARTBEAT,
                retry_policy=policies.PATIENT,
                summary=f"resume the GPU clients on {self._node.name}",
            )
        )

    async def restart_latched_pods(self, reset_at: datetime) -> RestartReport:
        """Restart pods that hold on to what they saw before the reset."""
        clients = self._policy.gpu_clients
        return await told(
            workflow.execute_activity_method(
                GpuClientPodActivities.restart_latched_pods,
                RestartRequest(node=self._node, incident_id=self._incident_id, policy=clients, reset_at=reset_at),
                **policies.waiting(clients.deadline, policies.ACT),
                summary="restart what the reset does not wake",
            )
        )
