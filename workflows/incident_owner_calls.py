"""The activities of an incident on who makes the node: Karpenter, EC2, Auto Scaling; see `incident_calls`."""

from temporalio import workflow

from activities.autoscaling import (
    AutoScalingActivities,
    MemberReplacement,
    MemberReplacementReport,
    Membership,
    MembershipQuery,
)
from activities.ec2 import Ec2Activities, InstanceCall, InstanceCallReport, InstanceRef, InstanceStatus
from activities.karpenter import (
    ClaimDeletion,
    ClaimDeletionReport,
    KarpenterActivities,
    Protection,
    ProtectRequest,
)
from sickbay.incident import Intent
from workflows import policies
from workflows.outside import Outside, told


class OwnerCalls(Outside):
    """What one incident asks of the node's owner and its cloud."""

    async def protect(self) -> Protection:
        """Keep Karpenter from ending the node while it is empty."""
        return await told(
            workflow.execute_activity_method(
                KarpenterActivities.protect_node,
                ProtectRequest(node=self._node, incident_id=self._incident_id),
                **policies.LOOK,
                summary="keep Karpenter's hands off the node",
            )
        )

    async def unprotect(self) -> Protection:
        """Give the node back to Karpenter's own disruption."""
        return await told(
            workflow.execute_activity_method(
                KarpenterActivities.unprotect_node,
                ProtectRequest(node=self._node, incident_id=self._incident_id),
                **policies.UNDO,
                summary="give the node back to Karpenter",
            )
        )

    async def delete_claim(self, name: str, uid: str) -> ClaimDeletionReport:
        """Have Karpenter replace the node by deleting its claim."""
        return await told(
            workflow.execute_activity_method(
                KarpenterActivities.delete_node_claim,
                ClaimDeletion(node=self._node, incident_id=self._incident_id, claim_name=name, claim_uid=uid),
                **policies.STEP,
                summary=f"delete NodeClaim {name}",
            )
        )

    async def membership(self) -> Membership:
        """The Auto Scaling group of the instance."""
        return await told(
            workflow.execute_activity_method(
                AutoScalingActivities.observe_membership,
                MembershipQuery(instance_id=self._node.machine),
                **policies.STEP,
                summary=f"group of {self._node.machine}",
            )
        )

    async def replace_member(self, intent: Intent, group: str) -> MemberReplacementReport:
        """Have the group put another instance in this one's place."""
        return await told(
            workflow.execute_activity_method(
                AutoScalingActivities.replace_member,
                MemberReplacement(
                    instance_id=self._node.machine,
                    group=group,
                    incident_id=self._incident_id,
                    attempt=intent.attempt,
                ),
                **policies.STEP,
                summary=f"replace {self._node.machine} in {group}",
            )
        )

    async def instance(self) -> InstanceStatus:
        """How the instance stands in EC2."""
        return await told(
            workflow.execute_activity_method(
                Ec2Activities.observe_instance,
                InstanceRef(instance_id=self._node.machine),
                **policies.STEP,
                summary=f"look at {self._node.machine}",
            )
        )

    async def reboot_instance(self, intent: Intent) -> InstanceCallReport:
        """Ask EC2 to reboot the instance."""
        return await told(
            workflow.execute_activity_method(
                Ec2Activities.reboot_instance,
                InstanceCall(
                    instance_id=self._node.machine,
                    incident_id=self._incident_id,
                    attempt=intent.attempt,
                    decided_at=intent.recorded_at,
                ),
                **policies.STEP,
                summary=f"reboot {self._node.machine} from outside",
            )
        )
