"""Whether other nodes would serve a training job better than those it runs on: fewer that fit, more, or none slow.

Asked by the attempt after each look. It reports the nodes of slow ranks, and leaves nothing itself.
"""

from temporalio import workflow

from sickbay.ranks.model import SlowRank
from sickbay.ranks.outcome import SlowOutcome, slow_rank_fault
from sickbay.training import manifests, sizes, slow_nodes
from sickbay.training.attempts import AttemptLook, AttemptState, CapacityLook
from workflows.outside import OutsideError
from workflows.training_calls import TrainingCalls
from workflows.training_record import TrainingRecord


class TrainingFit:
    """The fit of the running attempt to the cluster."""

    def __init__(self, record: TrainingRecord, calls: TrainingCalls) -> None:
        self._record = record
        self._calls = calls
        self._spec = record.spec

    async def why_leave(self, look: AttemptLook) -> str:
        """Why the attempt is to be left at a checkpoint now, in words; empty if it stays."""
        return await self._slow(look) or await self._resized(look)

    async def _slow(self, look: AttemptLook) -> str:
        """Tell of slow ranks, and have the nodes of the gravest checked."""
        record, ranks = self._record, look.ranks
        if ranks is None:
            return ""
        known = {each.rank for each in record.state.slow}
        record.change(slow=ranks.slow)
        uids = {place.node: place.node_uid for place in look.placements}
        leaving: list[SlowRank] = []
        for each in ranks.slow:
            if each.rank in known:
                continue
            record.note(f"rank {each.rank} on {each.node} is slow: {'; '.join(each.evidence) or each.cause}")
            what = slow_nodes.outcome_of(
                self._spec, record.history, each, ranks, await self._spares(look), workflow.now()
            )
            if what in (SlowOutcome.CHECK, SlowOutcome.LEAVE_AT_CHECKPOINT):
                fault = slow_rank_fault(each, f"{self._spec.namespace}/{self._spec.name}")
                await self._calls.report_node(each.node, uids.get(each.node, ""), (fault,))
            if what is SlowOutcome.LEAVE_AT_CHECKPOINT:
                leaving.append(each)
        record.keep_off(slow_nodes.kept_off(each, workflow.now()) for each in leaving)
        nodes = ", ".join(sorted({each.node for each in leaving}))
        return f"{nodes} slows the job down by more than a restart costs" if nodes else ""

    async def _resized(self, look: AttemptLook) -> str:
        """Smaller while it cannot start, larger at a checkpoint."""
        record, plan = self._record, self._record.state.plan
        if plan is None or self._spec.elasticity is None:
            return ""
        waiting = look.state is AttemptState.PENDING and any(wait.capacity for wait in look.waits)
        sized_at = record.state.sized_at or workflow.now()
        dwelt = workflow.now() >= sized_at + self._spec.elasticity.grow_after
        at_checkpoint = look.newest is not None and look.newest.step == record.history.durable_step and dwelt
        if not (waiting or (look.state is AttemptState.RUNNING and at_checkpoint)):
            return ""
        room = await self._room()
        if room is None:
            return ""
        if waiting:
            size = sizes.next_size(self._spec, manifests.nodes_of(self._spec.manifest), len(room.fitting))
            smaller = size is not None and size.nodes < plan.nodes
            return f"only {size.nodes} node(s) fit now" if smaller and size else ""
        larger = sizes.may_grow(self._spec, plan.nodes, len(room.fitting), sized_at, workflow.now())
        if larger is None:
            record.change(sized_at=workflow.now())
            return ""
        return f"{larger.nodes} nodes fit now"

    async def _spares(self, look: AttemptLook) -> int:
        """How many nodes the job could take and does not use; none where nobody answers."""
        room = await self._room()
        return len(set(room.fitting) - {place.node for place in look.placements}) if room else 0

    async def _room(self) -> CapacityLook | None:
        plan = self._record.state.plan
        try:
            return await self._calls.capacity(plan.ref, self._record.history.exclusions) if plan else None
        except OutsideError:
            return None
