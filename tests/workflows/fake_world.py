"""A world of activities that behaves as a test says: the incident workflow runs against it on a real Temporal server.

What it keeps is in `fake_state`; here is what activities do to it and see of it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from temporalio import activity

from activities.autoscaling import MemberReplacement, MemberReplacementReport, Membership, MembershipQuery
from activities.drain import DrainRequest
from activities.ec2 import InstanceCall, InstanceCallReport, InstanceRef, InstanceState, InstanceStatus
from activities.gpu_client_pods import (
    PauseReport,
    PauseRequest,
    RestartReport,
    RestartRequest,
    ResumeReport,
    ResumeRequest,
)
from activities.host import ProbeRequest, RebootReport, RebootRequest, ResetReport, ResetRequest
from activities.incidents import HistoryQuery, PastIncidents
from activities.job_incidents import JobsOnNode, JobsOver, JobsTold
from activities.karpenter import ClaimDeletion, ClaimDeletionReport, Protection, ProtectRequest
from activities.nodes import (
    BootWait,
    Containment,
    ContainRequest,
    NodeEvent,
    NodeQuery,
    PoolNode,
    PoolQuery,
    PoolSnapshot,
    Recorded,
    Release,
    ReleaseRequest,
    Succession,
    SuccessorWait,
)
from sickbay.checks import ActiveDepth, CheckLayer, CheckReport, CheckResult
from sickbay.faults import Rung
from sickbay.nodes import (
    DrainOutcome,
    DrainReport,
    GpuReading,
    HostProbe,
    NodeOwner,
    NodeSnapshot,
    OwnerKind,
    Readiness,
)
from tests.workflows.fake_state import GPU, SUCCESSOR, UUIDS, WorldState, fault

__all__ = ["SUCCESSOR", "FakeWorld", "fault"]


@dataclass
class FakeWorld(WorldState):
    """One node, its host, its cloud, and what cures it, behind the activities of an incident."""

    @activity.defn
    async def observe_node(self, query: NodeQuery) -> NodeSnapshot:
        await self._begin("observe_node")
        now = datetime.now(UTC)
        if not self.exists:
            return NodeSnapshot(observed_at=now, exists=False)
        return NodeSnapshot(
            observed_at=now,
            exists=True,
            uid=self.node.uid,
            provider_id=self.node.provider_id,
            pool=self.node.pool,
            boot_id=self.boot_id,
            ready=Readiness.TRUE,
            unschedulable=self.cordoned,
            incident_mark=self.mark,
            uncordoned_by_person=self.uncordoned_by_person,
            owner=NodeOwner(kind=self.owner, name="claim-1", uid="claim-uid-1", deleting=self.claim_deleting),
            foreign_locks=self.foreign_locks,
            gpu_capacity=8,
            gpu_allocatable=8,
            faults=self.said,
            cloud_told=bool(self.said),
            conditions_fresh=True,
            conditions_healthy=not (self.sick or self.unhealthy),
        )

    @activity.defn
    async def contain_node(self, request: ContainRequest) -> Containment:
        await self._begin("contain_node")
        if not self.exists:
            return Containment(contained=False, node_gone=True)
        if self.mark is None:
            self.prior, self.mark, self.cordoned = self.cordoned, request.incident_id, True
        return Containment(contained=True, prior_unschedulable=self.prior)

    @activity.defn
    async def release_node(self, request: ReleaseRequest) -> Release:
        await self._begin("release_node")
        if not self.exists:
            return Release(released=False, node_gone=True)
        if self.mark == request.incident_id:
            self.mark = None
            self.cordoned = self.cordoned and (self.prior or request.keep_cordon)
        return Release(released=True, left_cordoned=self.cordoned)

    @activity.defn
    async def protect_node(self, request: ProtectRequest) -> Protection:
        await self._begin("protect_node")
        self.protected = True
        return Protection(protected=True, ours=True)

    @activity.defn
    async def unprotect_node(self, request: ProtectRequest) -> Protection:
        await self._begin("unprotect_node")
        self.protected = False
        return Protection(protected=False, ours=True)

    @activity.defn
    async def drain_node(self, request: DrainRequest) -> DrainReport:
        await self._begin("drain_node")
        try:
            while self.drain_hangs:
                activity.heartbeat()
                await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            self.log.append("drain stopped")
            return DrainReport(outcome=DrainOutcome.CANCELLED)
        return DrainReport(outcome=self.drain)

    @activity.defn
    async def pause_gpu_clients(self, request: PauseRequest) -> PauseReport:
        self.paused_clients = self.gpu_clients
        await self._begin("pause_gpu_clients")
        return PauseReport(paused=self.gpu_clients, stopped=self.gpu_clients, remaining=self.clients_stay)

    @activity.defn
    async def resume_gpu_clients(self, request: ResumeRequest) -> ResumeReport:
        await self._begin("resume_gpu_clients")
        resumed, self.paused_clients = self.paused_clients, ()
        return ResumeReport(resumed=resumed)

    @activity.defn
    async def restart_latched_pods(self, request: RestartRequest) -> RestartReport:
        await self._begin("restart_latched_pods")
        return RestartReport(restarted=("kube-system/monitor",))

    @activity.defn
    async def wait_for_boot(self, wait: BootWait) -> NodeSnapshot:
        await self._begin("wait_for_boot")
        return await self.observe_node(NodeQuery(node=wait.node))

    @activity.defn
    async def observe_pool(self, query: PoolQuery) -> PoolSnapshot:
        await self._begin("observe_pool")
        now = datetime.now(UTC)
        return PoolSnapshot(observed_at=now, nodes=(PoolNode(node=self.node, created_at=now, available=False),))

    @activity.defn
    async def wait_for_successor(self, wait: SuccessorWait) -> Succession:
        await self._begin("wait_for_successor")
        if self.exists:
            return Succession(old_gone=False, waiting_for=f"{self.node.name} is still there")
        return Succession(old_gone=True, successor=SUCCESSOR)

    @activity.defn
    async def record_event(self, event: NodeEvent) -> Recorded:
        await self._begin("record_event")
        self.events.append(event.reason)
        return Recorded(name=event.reason)

    @activity.defn
    async def delete_node_claim(self, deletion: ClaimDeletion) -> ClaimDeletionReport:
        await self._begin("delete_node_claim")
        self._replace()
        return ClaimDeletionReport(requested=True)

    @activity.defn
    async def observe_membership(self, query: MembershipQuery) -> Membership:
        await self._begin("observe_membership")
        return Membership(group="group-1" if self.owner is OwnerKind.AUTOSCALING_GROUP else "")

    @activity.defn
    async def replace_member(self, replacement: MemberReplacement) -> MemberReplacementReport:
        await self._begin("replace_member")
        self._replace()
        return MemberReplacementReport(requested=True)

    @activity.defn
    async def observe_instance(self, instance: InstanceRef) -> InstanceStatus:
        await self._begin("observe_instance")
        return InstanceStatus(state=InstanceState.RUNNING if self.exists else InstanceState.TERMINATED)

    @activity.defn
    async def reboot_instance(self, call: InstanceCall) -> InstanceCallReport:
        await self._begin("reboot_instance")
        self._reboot()
        return InstanceCallReport(requested=True)

    @activity.defn
    async def past_incidents(self, query: HistoryQuery) -> PastIncidents:
        await self._begin("past_incidents")
        return PastIncidents(incidents=self.past)

    @activity.defn
    async def tell_jobs(self, request: JobsOnNode) -> JobsTold:
        await self._begin("tell_jobs")
        self.troubles.append(request.trouble)
        return JobsTold(jobs=self.jobs)

    @activity.defn
    async def tell_jobs_over(self, request: JobsOver) -> JobsTold:
        await self._begin("tell_jobs_over")
        self.overs.append(request.over)
        return JobsTold(jobs=request.jobs)

    @activity.defn
    async def probe_host(self, request: ProbeRequest) -> HostProbe:
        await self._begin("probe_host")
        action = "gpu_reset" if self.sick else "none"
        return HostProbe(
            observed_at=datetime.now(UTC),
            boot_id=self.boot_id,
            gpus=tuple(
                GpuReading(
                    uuid=uuid,
                    pci=GPU if index == 0 else f"0000:6{index + 1}:00",
                    recovery_action=action,
                    process_count=int(self.gpus_in_use),
                )
                for index, uuid in enumerate(UUIDS)
            ),
            gpus_answered=True,
            expected_gpus=8,
            faults=(self.fault,) if self.sick else (),
            checks=(_active_check(request.depth),),
        )

    @activity.defn
    async def reset_gpus(self, request: ResetRequest) -> ResetReport:
        await self._begin("reset_gpus")
        if self.reset_refused:
            return ResetReport(reset=False, refused=self.reset_refused)
        if self.gpu_clients and not self.paused_clients:
            return ResetReport(reset=False, refused="a process still uses the GPU")
        while self.reset_hangs:
            activity.heartbeat()
            await asyncio.sleep(0.05)
        self._cure(Rung.RESET_GPU)
        return ResetReport(reset=True)

    @activity.defn
    async def reboot_host(self, request: RebootRequest) -> RebootReport:
        await self._begin("reboot_host")
        self._reboot()
        return RebootReport(requested=True)

    @property
    def host(self) -> list[Callable[..., Any]]:
        """Activities of the node's own queue."""
        return [self.probe_host, self.reset_gpus, self.reboot_host]

    @property
    def cluster(self) -> list[Callable[..., Any]]:
        """Activities of the controller's queue."""
        return [
            self.observe_node,
            self.contain_node,
            self.release_node,
            self.protect_node,
            self.unprotect_node,
            self.drain_node,
            self.pause_gpu_clients,
            self.resume_gpu_clients,
            self.restart_latched_pods,
            self.wait_for_boot,
            self.observe_pool,
            self.wait_for_successor,
            self.record_event,
            self.delete_node_claim,
            self.observe_membership,
            self.replace_member,
            self.observe_instance,
            self.reboot_instance,
            self.past_incidents,
            self.tell_jobs,
            self.tell_jobs_over,
        ]


def _active_check(depth: ActiveDepth) -> CheckReport:
    result = CheckResult.NOT_APPLICABLE if depth is ActiveDepth.NONE else CheckResult.HEALTHY
    return CheckReport(name="gpu-work", layer=CheckLayer.ACTIVE, result=result, at=datetime.now(UTC))
