"""Writes what the agent found on our Node object: the annotation with the faults, our conditions, and Events; and where
the page of the node's ranks is.

Run by `workers.node` beside the agent. It writes when something changed and, at the latest, when the heartbeat is due,
so that the controller can tell a silent agent from a healthy node; a heartbeat alone is one write, of the status. It
writes only our own condition types and our own annotations; other actors' stay as they are. The API server being away
holds up nothing but this.
"""

import asyncio
import logging
from datetime import UTC, datetime
from typing import Final

from pydantic import JsonValue, ValidationError

from health.agent import NodeAgent
from health.api_server import STRATEGIC_MERGE, ApiError, ApiServer
from health.node_events import NodeEvents
from sickbay.conditions import FaultsAnnotation
from sickbay.faults import Fault
from sickbay.kube_objects import Node
from sickbay.names import ANNOTATION_FAULTS, ANNOTATION_RANKS, CONDITIONS
from sickbay.node_conditions import NodeCondition, bounded, node_conditions

_log = logging.getLogger(__name__)

FIELD_MANAGER: Final = "sickbay-node"
"""Not the controller's: the agent never touches a cordon."""

_NODES: Final = "api/v1/nodes"
_RETRY_SECONDS: Final = (1.0, 2.0, 5.0, 10.0, 30.0)


class Publisher:
    """Keeps one Node object up to date."""

    def __init__(self, server: ApiServer, node_name: str, agent: NodeAgent, heartbeat_seconds: float) -> None:
        self._server = server
        self._node = node_name
        self._agent = agent
        self._heartbeat_seconds = heartbeat_seconds
        self._events = NodeEvents(server, node_name, lambda: datetime.now(UTC))
        self.rank_url = ""
        """Where the ranks' page is served; empty where it is not. To be set before `run`."""
        self._published: tuple[object, ...] | None = None
        self._uid = ""
        """Of the Node object that carries what we published; another one carries nothing of ours."""
        self.problem = "not published yet"
        """Why the last write failed, in words; empty if it did not."""

    async def run(self) -> None:
        """Publish until cancelled."""
        failures = 0
        while True:
            try:
                await self._publish_once()
            except ApiError as error:
                self.problem = str(error)
                _log.warning("cannot write conditions of node %s: %s", self._node, self.problem)
                await asyncio.sleep(_RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)])
                failures += 1
            else:
                self.problem, failures = "", 0
                await self._change_or_heartbeat()

    async def _publish_once(self) -> None:
        while not self._agent.passed:
            await self._agent.changed.wait()
            self._agent.changed.clear()
        self._agent.changed.clear()
        report = self._agent.report()
        conditions = node_conditions(report.faults, self._agent.blind())
        if _essence(report) == self._published and await self._beat(conditions, report.reported_at):
            return
        self._published = None
        node = await self._read()
        self._uid = node.metadata.uid
        await self._write_conditions(conditions, report.reported_at, _statuses(node))
        # Last, because it carries the boot id: a fresh annotation never stands beside another boot's conditions.
        await self._write_annotation(report)
        self._published = _essence(report)
        await self._events.tell(report, self._uid)

    async def _change_or_heartbeat(self) -> None:
        """Wait until the report says something new, at most until the heartbeat is due."""
        try:
            async with asyncio.timeout(self._heartbeat_seconds):
                while _essence(self._agent.report()) == self._published:
                    await self._agent.changed.wait()
                    self._agent.changed.clear()
        except TimeoutError:
            return

    async def _beat(self, conditions: tuple[NodeCondition, ...], now: datetime) -> bool:
        """Write the heartbeat alone; False if the node lacks something of ours, as a new object of its name does."""
        standing = {condition.type: condition.status.value for condition in conditions}
        node = await self._write_conditions(conditions, now, standing)
        return node.metadata.uid == self._uid and ANNOTATION_FAULTS in node.metadata.annotations

    async def _read(self) -> Node:
        return _parsed(await self._server.get(_NODES, self._node))

    async def _write_conditions(
        self, conditions: tuple[NodeCondition, ...], now: datetime, standing: dict[str, str]
    ) -> Node:
        """Write all conditions, given the statuses that stand there now; gives the node as it is then."""
        stamp = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        entries: list[JsonValue] = []
        for condition in conditions:
            entry: dict[str, JsonValue] = {
                "type": condition.type,
                "status": condition.status.value,
                "reason": condition.reason,
                "message": condition.message,
                "lastHeartbeatTime": stamp,
            }
            if standing.get(condition.type) != condition.status.value:
                entry["lastTransitionTime"] = stamp
            entries.append(entry)
        body: dict[str, JsonValue] = {"status": {"conditions": entries}}
        return _parsed(await self._server.patch(_NODES, self._node, "status", body=body, kind=STRATEGIC_MERGE))

    async def _write_annotation(self, report: FaultsAnnotation) -> None:
        text = report.model_copy(update={"faults": bounded(report.faults)}).model_dump_json(exclude_defaults=True)
        # Null takes away what an earlier agent wrote.
        annotations: dict[str, JsonValue] = {ANNOTATION_FAULTS: text, ANNOTATION_RANKS: self.rank_url or None}
        await self._server.patch(_NODES, self._node, body={"metadata": {"annotations": annotations}})


def _statuses(node: Node) -> dict[str, str]:
    return {condition.type: condition.status for condition in node.status.conditions if condition.type in CONDITIONS}


def _parsed(text: bytes) -> Node:
    try:
        return Node.model_validate_json(text)
    except ValidationError as error:
        raise ApiError(f"the API server's answer is no node: {error.error_count()} fields are wrong") from error


def _essence(report: FaultsAnnotation) -> tuple[object, ...]:
    """What is worth a write of its own: not times or counts, which change all the time in a flood."""
    faults = tuple(sorted(_mark(fault) for fault in report.faults))
    return faults, report.checks_unknown, report.inventory, report.boot_seen_at


def _mark(fault: Fault) -> tuple[object, ...]:
    return (*fault.identity, fault.rung, fault.fault_class, len(fault.workloads))
