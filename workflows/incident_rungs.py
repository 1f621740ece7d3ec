"""How each rung acts and how its proof is awaited. Called by the incident workflow, which has prepared all else.

By then the intent is recorded, the node drained, the permit held, the approval given and the last look taken. Each
function returns what became of the rung; it never climbs by itself.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from temporalio import workflow

from sickbay.faults import Rung
from sickbay.incident import HandoverReason, Intent
from sickbay.model import Frozen
from sickbay.nodes import HostProbe, NodeOwner, NodeRef, NodeSnapshot, OwnerKind
from sickbay.policy.model import IncidentPolicy
from sickbay.proof import Judgement, proof_of_reboot, proof_of_reset, proof_of_stopped_workload
from sickbay.replacement import proof_of_replacement, route_to_replace
from sickbay.safety import Objection
from workflows.incident_calls import IncidentCalls
from workflows.incident_reset import GpuReset
from workflows.outside import HostSilentError, OutsideError

Judge = Callable[[Intent, HostProbe], Judgement]


class RungEnd(Frozen):
    """What became of a rung: a proof in words, or why it did not help, or who must decide now."""

    proof: str = ""
    failure: str = ""
    handover: HandoverReason | None = None
    successor: NodeRef | None = None

    @property
    def proven(self) -> bool:
        """The rung really happened."""
        return bool(self.proof)


class RungRunner:
    """The disrupting rungs of one incident."""

    def __init__(
        self,
        calls: IncidentCalls,
        policy: IncidentPolicy,
        node: NodeRef,
        expected_gpus: int | None,
        note: Callable[[str], None],
        objection: Callable[[NodeSnapshot], Objection | None],
    ) -> None:
        """`note` adds a line to the incident's account; `objection` says what in a look forbids an act, if anything."""
        self._calls = calls
        self._note = note
        self._objection = objection
        self._policy = policy
        self._node = node
        self._expected_gpus = expected_gpus

    async def run(self, intent: Intent, look: NodeSnapshot) -> RungEnd:
        """Act, and wait for the proof until the rung's deadline."""
        try:
            match intent.rung:
                case Rung.STOP_WORKLOAD:
                    return await self._stop_workload(intent)
                case Rung.RESET_GPU:
                    return await self._reset(intent)
                case Rung.REBOOT:
                    return await self._reboot(intent)
                case _:
                    return await self._replace(intent, look.owner)
        except HostSilentError as silent:
            return RungEnd(failure=str(silent))
        except OutsideError as failed:
            return RungEnd(failure=str(failed), handover=HandoverReason.FINAL_ERROR if failed.final else None)

    async def _stop_workload(self, intent: Intent) -> RungEnd:
        """The drain has stopped it; here is only the proof."""
        deadline = self._deadline(Rung.STOP_WORKLOAD)
        return await self._proven_by_probe(
            intent, deadline, proof_of_stopped_workload, "no process holds the GPUs any more"
        )

    async def _reset(self, intent: Intent) -> RungEnd:
        reset = GpuReset(self._calls, self._note, self._objection)
        report = await reset.act(intent)
        if report.refused:
            return RungEnd(failure=f"the reset was refused: {report.refused}")
        reset_at = workflow.now()
        end = await self._proven_by_probe(
            intent,
            self._deadline(Rung.RESET_GPU),
            proof_of_reset,
            f"the same {len(intent.gpu_uuids)} GPUs answer and ask for nothing",
        )
        if end.proven:
            await reset.restart_latched(reset_at)
        return end

    async def _reboot(self, intent: Intent) -> RungEnd:
        """From inside where the node's worker answers, else from outside; from outside too if nothing happens.

        EC2 resets an instance hard that does not shut down within minutes, which a hung host needs.
        """
        deadline = self._policy.reboot.deadline
        if not await self._rebooted_from_inside(intent):
            # The host may have rebooted although its worker failed to say so: no second reboot.
            running = (await self._calls.look()).boot_id
            if running == intent.boot_id and (refused := await self._reboot_from_outside(intent)):
                return refused
            return _reboot_end(intent, await self._calls.wait_for_boot(intent.boot_id, deadline))
        look = await self._calls.wait_for_boot(intent.boot_id, deadline / 2)
        if proof_of_reboot(intent, look).passed:
            return _reboot_end(intent, look)
        if look.boot_id == intent.boot_id and self._in_ec2:
            try:
                await self._calls.reboot_instance(intent)
            except OutsideError as failed:
                # The host itself has taken the order: a slow one may yet come back.
                self._note(f"it could not be rebooted from outside as well: {failed}")
        return _reboot_end(intent, await self._calls.wait_for_boot(intent.boot_id, deadline / 2))

    async def _rebooted_from_inside(self, intent: Intent) -> bool:
        """Whether the node's worker took the order, as far as anybody knows: if it fell silent over it, it may have."""
        try:
            report = await self._calls.reboot_host(intent)
        except HostSilentError as silent:
            return silent.took
        except OutsideError as failed:
            workflow.logger.info("no reboot from inside: %s", failed)
            return False
        return report.requested or report.already

    async def _reboot_from_outside(self, intent: Intent) -> RungEnd | None:
        if not self._in_ec2:
            return RungEnd(failure="the node's worker did not take the reboot, and no cloud can reboot it from outside")
        await self._calls.reboot_instance(intent)
        return None

    @property
    def _in_ec2(self) -> bool:
        return self._node.machine.startswith("i-")

    async def _replace(self, intent: Intent, owner: NodeOwner) -> RungEnd:
        """By whoever makes nodes of this pool; then wait for the old one to go and a new one to work."""
        if owner.kind is not OwnerKind.KARPENTER and self._in_ec2:
            membership = await self._calls.membership()
            owner = route_to_replace(owner, membership.group)
        if owner.kind is OwnerKind.NOBODY:
            return RungEnd(
                failure="nobody we know makes nodes of this pool: replace it by hand", handover=HandoverReason.NO_OWNER
            )
        known = tuple(member.node.uid for member in (await self._calls.observe_pool()).nodes)
        asked_at = workflow.now()
        if owner.kind is OwnerKind.KARPENTER:
            await self._calls.delete_claim(owner.name, owner.uid)
        else:
            await self._calls.replace_member(intent, owner.name)
        deadline = self._deadline(Rung.REPLACE)
        succession = await self._calls.wait_for_successor(
            asked_at, known, self._expected_gpus, self._policy.replace.deadline
        )
        while True:
            judgement = proof_of_replacement(
                old_node_gone=succession.old_gone,
                old_instance=await self._old_instance(),
                successor=succession.successor,
                waiting_for=succession.waiting_for,
            )
            if judgement.passed and succession.successor is not None:
                return RungEnd(
                    proof=f"{self._node.machine} is gone and {succession.successor.name} works",
                    successor=succession.successor,
                )
            if succession.waiting_for or workflow.now() >= deadline:
                return RungEnd(failure=f"no proof of a replacement: {judgement}")
            await workflow.sleep(self._pause(deadline), summary=str(judgement)[:200])

    async def _old_instance(self) -> str | None:
        """EC2's word for the old instance's state, None where it cannot be asked.

        Where Karpenter replaces, we may have no right to ask EC2 (facts: remediation, 9), and need none: it keeps its
        finalizer on the Node until the instance has ended.
        """
        if not self._in_ec2:
            return None
        try:
            return (await self._calls.instance()).state
        except OutsideError as failed:
            if failed.final:
                return None
            raise

    def _deadline(self, rung: Rung) -> datetime:
        return workflow.now() + self._policy.for_rung(rung).deadline

    async def _proven_by_probe(self, intent: Intent, deadline: datetime, judge: Judge, proof: str) -> RungEnd:
        while True:
            try:
                judgement = judge(intent, await self._calls.probe(self._expected_gpus))
            except (HostSilentError, OutsideError) as failed:
                # A probe that fails proves nothing either way; a stronger rung is due at the deadline, not before.
                judgement = Judgement(missing=(str(failed),))
            if judgement.passed:
                return RungEnd(proof=proof)
            if judgement.final or workflow.now() >= deadline:
                return RungEnd(failure=f"no proof: {judgement}")
            await workflow.sleep(self._pause(deadline), summary=f"no proof yet: {judgement}"[:200])

    def _pause(self, deadline: datetime) -> timedelta:
        return min(self._policy.verify_every, max(deadline - workflow.now(), timedelta(seconds=1)))


def _reboot_end(intent: Intent, look: NodeSnapshot) -> RungEnd:
    judgement = proof_of_reboot(intent, look)
    if judgement.passed:
        return RungEnd(proof=f"boot id {look.boot_id} after {intent.boot_id}, and Ready")
    return RungEnd(failure=f"no proof of a reboot: {judgement}")
