"""The activities of an incident on the node's own queue; see `incident_calls`."""

from datetime import timedelta

from temporalio import workflow
from temporalio.workflow import ActivityCancellationType

from activities.host import HostActivities, ProbeRequest, RebootReport, RebootRequest, ResetReport, ResetRequest
from sickbay.checks import ActiveDepth
from sickbay.incident import Intent
from sickbay.names import node_queue
from sickbay.nodes import HostProbe, NodeRef
from workflows import policies
from workflows.outside import Outside, told


class HostCalls(Outside):
    """What one incident asks of the node's own worker."""

    async def probe(
        self,
        expected_gpus: int | None,
        node: NodeRef | None = None,
        *,
        depth: ActiveDepth = ActiveDepth.NONE,
        burn_in: timedelta | None = None,
    ) -> HostProbe:
        """One full pass of the health layers on the node, or on its successor; of the active checks, to this depth."""
        name = (node or self._node).name
        load = burn_in or self._policy.verification.burn_in
        return await told(
            workflow.execute_activity_method(
                HostActivities.probe_host,
                ProbeRequest(incident_id=self._incident_id, expected_gpus=expected_gpus, depth=depth, burn_in=load),
                task_queue=node_queue(name),
                schedule_to_start_timeout=self._policy.host_pickup,
                start_to_close_timeout=policies.host_probe(depth, load),
                heartbeat_timeout=policies.HOST_HEARTBEAT,
                retry_policy=policies.HOST_ONCE,
                summary=f"probe {name}" if depth is ActiveDepth.NONE else f"probe {name}, active checks: {depth}",
            )
        )

    async def reset_gpus(self, intent: Intent, pcis: tuple[str, ...]) -> ResetReport:
        """Reset GPUs, their clients stopped before and restored after."""
        return await told(
            workflow.execute_activity_method(
                HostActivities.reset_gpus,
                ResetRequest(
                    incident_id=self._incident_id,
                    attempt=intent.attempt,
                    boot_id=intent.boot_id,
                    pcis=pcis,
                    decided_at=intent.recorded_at,
                ),
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
        return await told(
            workflow.execute_activity_method(
                HostActivities.reboot_host,
                RebootRequest(
                    incident_id=self._incident_id,
                    attempt=intent.attempt,
                    boot_id=intent.boot_id,
                    decided_at=intent.recorded_at,
                ),
                task_queue=node_queue(self._node.name),
                schedule_to_start_timeout=self._policy.host_pickup,
                start_to_close_timeout=policies.HOST_ORDER_TIME,
                heartbeat_timeout=policies.HOST_HEARTBEAT,
                retry_policy=policies.HOST_ORDER,
                summary=f"reboot {self._node.name} from inside",
            )
        )
