"""The watch's part in admissions: our taint goes back on after a foreign reboot, and tainted nodes get their admission.

Used by `workers.triage` for each node that it handles. The taint is put back without Temporal, straight from the watch;
the admission itself waits until Temporal answers, and loses nothing by that but time. Decisions are in
`sickbay.admission`.

Hundreds of nodes may wait at once for room or for Temporal. They share their handlers with sick nodes, whose
containment must not wait behind them: while there is known to be no room or no answer, nobody asks.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import structlog
from kubernetes.aio.client import ApiClient

from activities import node_events
from activities.node_models import NodeEvent
from sickbay import admission, names
from sickbay.admission import AdmissionInput
from sickbay.catalogue import CATALOGUE_VERSION
from sickbay.conditions import FaultsAnnotation
from sickbay.nodes import NodeRef, NodeSnapshot
from sickbay.policy.model import IncidentPolicy
from sickbay.triage import Standing
from workers.admission_desk import AdmissionDesk
from workers.incident_desk import IncidentDesk, TemporalSilentError
from workers.watch_containment import WatchAnswer, WatchContainment

AGAIN: Final = timedelta(seconds=30)
"""Until a node is looked at again that waits for the end of its incident."""
REST: Final = timedelta(seconds=10)
"""How long nobody asks again for room in a batch that was full, or a Temporal that was silent; then one node does."""
SEEN_WITHIN: Final = timedelta(seconds=30)
"""How long visibility may take to show an admission that was started; until then it is counted from memory."""

log: Final = structlog.get_logger(__name__)


class NodeAdmissions:
    """The admissions of one cluster, as the watch looks after them."""

    def __init__(
        self,
        cluster: str,
        api: ApiClient,
        incidents: IncidentDesk,
        containment: WatchContainment,
        clock: Callable[[], datetime],
    ) -> None:
        self._cluster = cluster
        self._api = api
        self._incidents = incidents
        self._desk = AdmissionDesk(cluster, incidents)
        self._containment = containment
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()
        self._started: dict[str, datetime] = {}
        self._rests_until: datetime | None = None

    async def hold_back(self, node: NodeRef, snapshot: NodeSnapshot, policy: IncidentPolicy) -> None:
        """Block new work on an admitted node that somebody else rebooted, within the cap. Never raises."""
        if not admission.needs_taint(snapshot, policy.admission):
            return
        answer = await self._containment.hold_back(node)
        if answer is WatchAnswer.CONTAINED:
            log.info("rebooted by others: no work before it is validated", node=node.name, boot=snapshot.boot_id)

    async def begin(
        self, node: NodeRef, snapshot: NodeSnapshot, policy: IncidentPolicy, told: FaultsAnnotation | None
    ) -> timedelta | None:
        """See that a tainted node has its admission; when to look again, if that is known.

        Raises TemporalSilentError, FinalError or PassingError; the taint stays meanwhile.
        """
        if not admission.wants_admission(snapshot):
            return None
        if not admission.is_ours_to_admit(snapshot, policy.admission):
            await node_events.record(self._api, _not_enabled(node), self._clock())
            return None
        if (rest := self._rest()) is not None:
            return rest
        try:
            return await self._begin(node, snapshot, policy, told)
        except TemporalSilentError:
            self._rests_until = self._clock() + REST
            raise

    def _rest(self) -> timedelta | None:
        """How long there is no use in asking Temporal; None where there may be."""
        left = (self._rests_until or self._clock()) - self._clock()
        return left if left > timedelta(0) else None

    async def _begin(
        self, node: NodeRef, snapshot: NodeSnapshot, policy: IncidentPolicy, told: FaultsAnnotation | None
    ) -> timedelta | None:
        known = await self._desk.look(names.admission_id(self._cluster, node.machine))
        wait = admission.begins_in(known, policy, snapshot, self._clock())
        if wait is None or wait > timedelta(0):
            return wait
        return await self._start(node, policy, told)

    async def _start(self, node: NodeRef, policy: IncidentPolicy, told: FaultsAnnotation | None) -> timedelta | None:
        incident_id = names.incident_id(self._cluster, node.machine)
        incident = await self._incidents.look(incident_id)
        if incident.standing is Standing.UNKNOWN:
            raise TemporalSilentError(f"{incident_id}: Temporal does not say how it stands")
        if incident.standing is Standing.OPEN:
            return AGAIN
        # One at a time, each counted before the next: a whole pool may come up at once.
        async with self._one_at_a_time:
            if (rest := self._rest()) is not None:
                return rest
            now = self._clock()
            if not admission.may_begin(policy.admission, len(await self._under_validation())):
                self._rests_until = now + REST
                return REST
            await self._desk.start(
                AdmissionInput(
                    node=node,
                    policy=policy,
                    catalogue_version=CATALOGUE_VERSION,
                    started_at=now,
                    expected_gpus=told.expected_gpus if told else None,
                )
            )
            self._started[names.admission_id(self._cluster, node.machine)] = now
        log.info("admission begun", node=node.name)
        return None

    async def _under_validation(self) -> frozenset[str]:
        """All that take part in the batch: those listed, and those started that no list has shown yet."""
        now, listed = self._clock(), await self._desk.under_validation()
        self._started = {
            name: at for name, at in self._started.items() if name not in listed and now - at < SEEN_WITHIN
        }
        return listed | self._started.keys()


def _not_enabled(node: NodeRef) -> NodeEvent:
    message = (
        f"the node bears {names.TAINT_ADMISSION}, and the policy admits no nodes of pool {node.pool or '(none)'}: "
        "nobody takes the taint away; set admission.enabled for the pool, or take the taint out of it"
    )
    return NodeEvent(node=node, incident_id="", reason="SickbayAdmissionOff", message=message, warning=True)
