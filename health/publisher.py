"""Writes what the agent found on our Node object: the annotation with the faults, and our conditions.

Run by `workers.node` beside the agent. It writes when something changed and, at the latest, when the heartbeat is due,
so that the controller can tell a silent agent from a healthy node. It writes only our own condition types and our own
annotation; other actors' stay as they are. The API server being away holds up nothing but this.
"""

import asyncio
import json
import logging
from datetime import UTC, datetime
from typing import Any, Final

import aiohttp
from kubernetes.aio import client
from kubernetes.aio.client.exceptions import ApiException

from health.agent import NodeAgent
from sickbay.conditions import FaultsAnnotation
from sickbay.faults import Fault
from sickbay.names import ANNOTATION_FAULTS, CONDITIONS
from sickbay.node_conditions import NodeCondition, bounded, node_conditions

_log = logging.getLogger(__name__)

FIELD_MANAGER: Final = "sickbay-node"
"""Not the controller's: the agent never touches a cordon."""

_CALL_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = (1.0, 2.0, 5.0, 10.0, 30.0)


class Publisher:
    """Keeps one Node object up to date."""

    def __init__(self, api: client.ApiClient, node_name: str, agent: NodeAgent, heartbeat_seconds: float) -> None:
        self._core = client.CoreV1Api(api)
        self._node = node_name
        self._agent = agent
        self._heartbeat_seconds = heartbeat_seconds
        self._published: tuple[object, ...] | None = None
        self.problem = "not published yet"
        """Why the last write failed, in words; empty if it did not."""

    async def run(self) -> None:
        """Publish until cancelled."""
        failures = 0
        while True:
            try:
                await self._publish_once()
            except (ApiException, aiohttp.ClientError, TimeoutError) as error:
                self.problem = _words(error)
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
        await self._write_conditions(conditions, report.reported_at)
        # Last, because it carries the boot id: a fresh annotation never stands beside another boot's conditions.
        await self._write_annotation(report)
        self._published = _essence(report)

    async def _change_or_heartbeat(self) -> None:
        """Wait until the report says something new, at most until the heartbeat is due."""
        try:
            async with asyncio.timeout(self._heartbeat_seconds):
                while _essence(self._agent.report()) == self._published:
                    await self._agent.changed.wait()
                    self._agent.changed.clear()
        except TimeoutError:
            return

    async def _write_conditions(self, conditions: tuple[NodeCondition, ...], now: datetime) -> None:
        node = await self._core.read_node(self._node, _request_timeout=_CALL_SECONDS)
        standing = (node.status.conditions if node.status else None) or []
        before = {found.type: found for found in standing if found.type in CONDITIONS}
        stamp = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body: list[dict[str, str]] = []
        for condition in conditions:
            entry = {
                "type": condition.type,
                "status": condition.status.value,
                "reason": condition.reason,
                "message": condition.message,
                "lastHeartbeatTime": stamp,
            }
            old = before.get(condition.type)
            if old is None or old.status != condition.status.value:
                entry["lastTransitionTime"] = stamp
            body.append(entry)
        await self._core.patch_node_status(
            self._node,
            {"status": {"conditions": body}},
            field_manager=FIELD_MANAGER,
            _content_type="application/strategic-merge-patch+json",
            _request_timeout=_CALL_SECONDS,
        )

    async def _write_annotation(self, report: FaultsAnnotation) -> None:
        text = report.model_copy(update={"faults": bounded(report.faults)}).model_dump_json(exclude_defaults=True)
        body: dict[str, Any] = {"metadata": {"annotations": {ANNOTATION_FAULTS: text}}}
        await self._core.patch_node(
            self._node,
            body,
            field_manager=FIELD_MANAGER,
            _content_type="application/merge-patch+json",
            _request_timeout=_CALL_SECONDS,
        )


def _essence(report: FaultsAnnotation) -> tuple[object, ...]:
    """What is worth a write of its own: not times or counts, which change all the time in a flood."""
    return tuple(sorted(_mark(fault) for fault in report.faults)), report.checks_unknown


def _mark(fault: Fault) -> tuple[object, ...]:
    return (*fault.identity, fault.rung, fault.fault_class, len(fault.workloads))


def _words(error: Exception) -> str:
    if not isinstance(error, ApiException):
        return str(error) or type(error).__name__
    try:
        said = json.loads(error.body or "{}").get("message", "")
    except (ValueError, AttributeError):
        said = ""
    return f"{error.status} {said or error.reason}"
