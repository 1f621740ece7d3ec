"""The controller's reflex: from a node that changed to containment and to its incident.

Run by `workers.controller` on the replica that leads. `NodeWatch` says which nodes changed, `sickbay.triage` what that
means, and this module carries it out: contain first and straight away, then talk to Temporal, each under its own
deadline. It works by level: a node is handled from how it and its incident stand now, so that events may be lost,
doubled or late, and every few minutes all nodes are handled anew. What it remembers between looks only saves it from
asking again.

No two handlings of one node run at once (`WorkQueue`).
"""

import asyncio
from collections.abc import Callable, Hashable
from datetime import datetime, timedelta
from typing import Final, Protocol

import structlog
from kubernetes.aio.client import ApiClient

from activities import node_events, node_marks
from activities.errors import FinalError, PassingError
from activities.node_models import NodeEvent, ReleaseRequest
from activities.waiting import utc_now
from sickbay import names
from sickbay.catalogue import CATALOGUE_VERSION, lookup
from sickbay.faults import Fault
from sickbay.incident import FaultReport, FaultsCleared, IncidentInput
from sickbay.kube_objects import Node
from sickbay.node_faults import report as agent_report
from sickbay.node_reading import reference
from sickbay.nodes import NodeRef, NodeSnapshot
from sickbay.policy.model import ContainmentPolicy, IncidentPolicy
from sickbay.triage import Look, Plan, Standing, TriageRules, concerns_us, needs_temporal, plan
from sickbay.watch_faults import WatchRules
from workers import controller_metrics as metrics
from workers.incident_desk import IncidentDesk, TemporalSilentError
from workers.node_admissions import NodeAdmissions
from workers.node_looks import NodeLooks
from workers.node_watch import NodeWatch
from workers.watch_containment import WatchAnswer, WatchContainment
from workers.work_queue import WorkQueue

HANDLERS: Final = 8
"""Nodes handled at once: enough that a slow answer for one does not hold up the containment of another."""

log: Final = structlog.get_logger(__name__)


class Policies(Protocol):
    """The policy file, as far as the watch reads it."""

    @property
    def containment(self) -> ContainmentPolicy:
        """The cap of the watch's own cordons."""
        ...

    def for_pool(self, pool: str) -> IncidentPolicy:
        """The policy of one pool's incidents."""
        ...


class Triage:
    """Handles every node of one cluster by what `sickbay.triage` says."""

    def __init__(
        self,
        *,
        cluster: str,
        api: ApiClient,
        desk: IncidentDesk,
        policies: Policies,
        rules: TriageRules,
        reconcile_every: timedelta,
        label_selector: str = "",
        watch_rules: WatchRules | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.watch = NodeWatch(api, self._changed, label_selector)
        self._looks = NodeLooks(self.watch.nodes, watch_rules or WatchRules())
        self._cluster = cluster
        self._api = api
        self._desk = desk
        self._policies = policies
        self._rules = rules
        self._reconcile_every = reconcile_every
        self._clock = clock
        self._queue = WorkQueue()
        self._containment = WatchContainment(api, self.watch.nodes, lambda: policies.containment, clock)
        self._admissions = NodeAdmissions(cluster, api, desk, self._containment, clock)
        self._open_ids: frozenset[str] = frozenset()
        self._settled: dict[str, Hashable] = {}

    async def run(self) -> None:
        """Watch and handle until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.watch.run(), name="watch")
                tasks.create_task(self._reconcile(), name="reconcile")
                for _ in range(HANDLERS):
                    tasks.create_task(self._handle_forever(), name="handler")
        finally:
            self._queue.close()

    def _changed(self, uid: str) -> None:
        metrics.NODES.set(len(self.watch.nodes))
        if uid not in self.watch.nodes:
            self._settled.pop(uid, None)
            self._looks.forget(uid)
        self._queue.add(uid)

    async def _reconcile(self) -> None:
        """Now and then, handle every node as if it had just been seen."""
        await self.watch.synced.wait()
        while True:
            try:
                # A node that looks well and bears no mark may yet have an incident that waits to hear so.
                self._open_ids = await self._desk.open_ids()
            except TemporalSilentError as error:
                log.warning("reconciling without the list of open incidents", error=str(error))
            self._settled.clear()
            for uid in tuple(self.watch.nodes):
                self._queue.add(uid)
            await asyncio.sleep(self._reconcile_every.total_seconds())

    async def _handle_forever(self) -> None:
        # The containment cap counts the marks of all nodes: half a list would hide those that we hold already.
        await self.watch.synced.wait()
        while True:
            uid = await self._queue.take()
            try:
                again_in = await self._handle(uid)
            except (FinalError, PassingError, TemporalSilentError) as error:
                what = "temporal" if isinstance(error, TemporalSilentError) else "kubernetes"
                log.warning("a node will be looked at again", uid=uid, error=str(error))
                self._failed(uid, what)
            except Exception:
                # One node of a kind that we did not think of must not end the containment of all others.
                log.exception("a node could not be handled", uid=uid)
                self._failed(uid, "sickbay")
            else:
                self._queue.done(uid)
                if again_in is not None:
                    self._queue.add_later(uid, again_in)

    def _failed(self, uid: str, what: str) -> None:
        metrics.FAILURES.labels(what=what).inc()
        self._queue.failed(uid)

    async def _handle(self, uid: str) -> timedelta | None:
        """Do what one node needs now; when to look again, if that is known."""
        node = self.watch.nodes.get(uid)
        if node is None or not concerns_us(node):
            return None
        ref, snapshot = reference(node, self._cluster), self._looks.look(node, self._clock())
        policy = self._policies.for_pool(ref.pool)
        await self._admissions.hold_back(ref, snapshot, policy)
        incident_in = await self._see_to_incident(node, ref, snapshot)
        admission_in = await self._admissions.begin(ref, snapshot, policy, agent_report(node))
        return min((wait for wait in (incident_in, admission_in) if wait is not None), default=None)

    async def _see_to_incident(self, node: Node, ref: NodeRef, snapshot: NodeSnapshot) -> timedelta | None:
        """Do what the node's incident needs now; when to look again, if that is known."""
        uid, now = snapshot.uid, snapshot.observed_at
        incident_id = names.incident_id(self._cluster, ref.machine)
        if not needs_temporal(snapshot) and incident_id not in self._open_ids:
            return None
        stands = _what_matters(snapshot)
        if self._settled.get(uid) == stands:
            return None
        look = await self._look(ref, snapshot, incident_id, now)
        decided = plan(look)
        await self._carry_out(decided, look, ref, node)
        if look.incident.standing is Standing.UNKNOWN:
            raise TemporalSilentError(f"{incident_id}: Temporal does not say how it stands; {decided.why}")
        if not decided.acts and decided.again_in is None:
            self._settled[uid] = stands
        return decided.again_in

    async def _look(self, ref: NodeRef, snapshot: NodeSnapshot, incident_id: str, now: datetime) -> Look:
        incident = await self._desk.look(incident_id)
        mark = snapshot.incident_mark
        marked = incident if mark is None or mark == incident_id else await self._desk.look(mark)
        return Look(
            snapshot=snapshot,
            incident_id=incident_id,
            incident=incident,
            marked=marked.standing,
            policy=self._policies.for_pool(ref.pool),
            rules=self._rules,
            now=now,
        )

    async def _carry_out(self, decided: Plan, look: Look, ref: NodeRef, node: Node) -> None:
        if decided.release and look.snapshot.incident_mark:
            await self._release(ref, look.snapshot.incident_mark)
        within_cap = True
        if decided.contain:
            answer = await self._containment.contain(ref, look.incident_id, look.policy.taint)
            within_cap = answer is not WatchAnswer.BEYOND_CAP
        if decided.opens:
            await self._open(decided, look, ref, node, contain=within_cap)
        elif decided.report or decided.clear is not None:
            await self._join(decided, look)
        for fault in decided.notice:
            await node_events.record(self._api, _notice(ref, fault), look.now)

    async def _release(self, ref: NodeRef, incident_id: str) -> None:
        await node_marks.release(self._api, ReleaseRequest(node=ref, incident_id=incident_id))
        metrics.RELEASED.inc()
        log.warning("undid a mark whose incident is over", node=ref.name, incident=incident_id)

    async def _open(self, decided: Plan, look: Look, ref: NodeRef, node: Node, *, contain: bool) -> None:
        told = agent_report(node)
        start = IncidentInput(
            node=ref,
            policy=look.policy,
            catalogue_version=CATALOGUE_VERSION,
            opened_at=look.now,
            faults=decided.report,
            contain=contain,
            expected_gpus=(told and told.expected_gpus) or look.snapshot.gpu_devices or None,
        )
        await self._desk.open(start, FaultReport(faults=decided.report, observed_at=look.now))
        self._open_ids |= {look.incident_id}
        metrics.TOLD.labels(kind="open").inc()
        codes = sorted({fault.code for fault in decided.report})
        log.info("incident opened", node=ref.name, incident=look.incident_id, fault=codes, why=decided.why)

    async def _join(self, decided: Plan, look: Look) -> None:
        """Tell an open incident what it does not know. If it ended meanwhile, the next look finds it so."""
        still_open = True
        if decided.report:
            report = FaultReport(faults=decided.report, observed_at=look.now)
            still_open = await self._desk.report(look.incident_id, report)
            metrics.TOLD.labels(kind="report").inc()
        if still_open and decided.clear is not None:
            cleared = FaultsCleared(codes=decided.clear, observed_at=look.now)
            still_open = await self._desk.clear(look.incident_id, cleared)
            metrics.TOLD.labels(kind="clear").inc()
        if not still_open:
            self._queue.add_later(look.snapshot.uid, self._rules.cooldown)


def _what_matters(snapshot: NodeSnapshot) -> Hashable:
    """What of a node a plan rests on: while it stays the same, and nothing was to be done, nothing is to be done."""
    faults = frozenset((fault.identity, fault.rung) for fault in snapshot.faults)
    told = (snapshot.ready, snapshot.conditions_fresh, snapshot.conditions_healthy, snapshot.undecided)
    beside = (snapshot.cloud_told, snapshot.admission_taint)
    return (faults, told, beside, snapshot.incident_mark, snapshot.deleting, snapshot.pool)


def _notice(node: NodeRef, fault: Fault) -> NodeEvent:
    evidence = fault.evidence[0] if fault.evidence else "no line of it was kept"
    message = f"{fault.code} on {fault.component.kind} {fault.component.id} is for a person to judge: {evidence}"
    reason = "UnknownFault" if not lookup(fault.code).known else "SickbayNotice"
    return NodeEvent(node=node, incident_id="", reason=reason, message=message, warning=True)
