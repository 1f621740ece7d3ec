"""Replays one recorded history with today's workflows, and compares the arguments of its activities too.

The SDK compares which activity is scheduled when, not with which arguments: a workflow that iterates over a set replays
well while its calls go to other nodes (facts: Temporal, 0.2). `python -m tests.replay.replaying` replays all histories,
for a run under another hash seed.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import (
    Interceptor,
    Replayer,
    StartActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from workers.temporal_plugin import temporal_plugin
from workflows.disruption_budget import DisruptionBudget
from workflows.node_admission import NodeAdmission
from workflows.node_incident import NodeIncident
from workflows.node_suspicions import NodeSuspicions
from workflows.training_job import TrainingJob

HISTORIES: Final = Path(__file__).parent / "histories"
WORKFLOWS: Final = (NodeIncident, NodeAdmission, DisruptionBudget, TrainingJob, NodeSuspicions)

Call = tuple[str, list[Any]]
"""An activity by its name, and its arguments as JSON holds them."""

_RECORD: Final = "record_activity"


def names() -> list[str]:
    """All recorded histories."""
    return sorted(path.stem for path in HISTORIES.glob("*.json"))


async def differences(history: WorkflowHistory) -> list[str]:
    """Where the activities that a replay schedules differ from the recorded ones.

    Raises as the SDK does where the workflow itself takes another way.
    """
    recorder = _Recorder()
    replayer = Replayer(workflows=WORKFLOWS, plugins=[temporal_plugin()], interceptors=[recorder])
    await replayer.replay_workflow(history)
    recorded = _scheduled(history)
    if len(recorder.calls) != len(recorded):
        return [f"{len(recorder.calls)} activities instead of {len(recorded)}"]
    calls = zip(recorder.calls, recorded, strict=True)
    return [f"{now} instead of {then}" for now, then in calls if now[0] != then[0] or not _repeats(now[1], then[1])]


def recorded_history(name: str) -> WorkflowHistory:
    """A recorded history under the workflow id of its time, which an incident writes on nodes and compares."""
    events = json.loads((HISTORIES / f"{name}.json").read_text(encoding="utf-8"))
    workflow_id = events["events"][0]["workflowExecutionStartedEventAttributes"]["workflowId"]
    return WorkflowHistory.from_json(workflow_id, events)


class _Recorder(Interceptor):
    """Notes the activities that a workflow schedules."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:  # noqa: A002 - the SDK's name
        input.unsafe_extern_functions[_RECORD] = self._record
        return _Inbound

    def _record(self, activity: str, arguments: list[Any]) -> None:
        payloads = pydantic_data_converter.payload_converter.to_payloads(arguments)
        self.calls.append((activity, _values(payloads)))


class _Inbound(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound))


class _Outbound(WorkflowOutboundInterceptor):
    def start_activity(self, input: StartActivityInput) -> "workflow.ActivityHandle[Any]":  # noqa: A002 - the SDK's name
        record: Callable[[str, list[Any]], None] = workflow.extern_functions()[_RECORD]
        record(input.activity, list(input.args))
        return super().start_activity(input)


def _scheduled(history: WorkflowHistory) -> list[Call]:
    scheduled = [
        event.activity_task_scheduled_event_attributes
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
    ]
    return [(one.activity_type.name, _values(one.input.payloads)) for one in scheduled]


def _values(payloads: Any) -> list[Any]:
    found: list[Payload] = list(payloads)
    return [json.loads(payload.data) for payload in found]


def _repeats(now: Any, then: Any) -> bool:
    """Whether a value repeats a recorded one. A field that a model got since then has nothing to differ from."""
    if isinstance(now, dict) and isinstance(then, dict):
        return all(key in now and _repeats(now[key], value) for key, value in then.items())
    if isinstance(now, list) and isinstance(then, list):
        return len(now) == len(then) and all(map(_repeats, now, then))
    return bool(now == then)


async def _replay_all() -> list[str]:
    return [f"{name}: {found}" for name in names() for found in await differences(recorded_history(name))]


if __name__ == "__main__":
    found = asyncio.run(_replay_all())
    sys.stderr.writelines(f"{line}\n" for line in found)
    sys.stderr.flush()
    # The SDK's threads may crash an interpreter that tidies up at its exit (facts: Temporal, 0.10).
    os._exit(1 if found else 0)
