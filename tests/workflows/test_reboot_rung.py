"""A reboot is asked for once: an order that the node's worker may have taken is not given again from outside."""

from datetime import UTC, datetime
from unittest.mock import AsyncMock

import pytest
from temporalio.exceptions import ActivityError, RetryState, TimeoutType
from temporalio.exceptions import TimeoutError as ActivityTimeoutError

from sickbay.faults import Rung
from sickbay.incident import Intent
from sickbay.nodes import NodeRef, NodeSnapshot, Readiness
from sickbay.policy.model import IncidentPolicy
from workflows.incident_calls import IncidentCalls
from workflows.incident_rungs import RungRunner
from workflows.outside import HostSilentError, failure_of

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NODE = NodeRef(cluster="prod", name="a", uid="uid-a", provider_id="aws:///eu-west-1a/i-0abc")
INTENT = Intent(rung=Rung.REBOOT, attempt=1, recorded_at=NOW, boot_id="boot-1")
DOWN = NodeSnapshot(observed_at=NOW, exists=True, boot_id="boot-1", ready=Readiness.UNKNOWN)
BACK = NodeSnapshot(observed_at=NOW, exists=True, boot_id="boot-2", ready=Readiness.TRUE)


def timed_out(kind: TimeoutType) -> ActivityError:
    error = ActivityError(
        "timed out",
        scheduled_event_id=1,
        started_event_id=2,
        identity="",
        activity_type="reboot_host",
        activity_id="1",
        retry_state=RetryState.TIMEOUT,
    )
    error.__cause__ = ActivityTimeoutError("timed out", type=kind, last_heartbeat_details=[])
    return error


@pytest.mark.parametrize(
    ("kind", "took"), [(TimeoutType.SCHEDULE_TO_START, False), (TimeoutType.HEARTBEAT, True)], ids=str
)
def test_a_worker_took_what_it_fell_silent_over_and_not_what_it_never_started(kind: TimeoutType, took: bool) -> None:
    failure = failure_of(timed_out(kind))
    assert isinstance(failure, HostSilentError)
    assert failure.took is took


@pytest.mark.parametrize(("took", "asked_of_ec2"), [(True, 0), (False, 1)])
async def test_ec2_reboots_only_what_the_node_s_worker_never_took(took: bool, asked_of_ec2: int) -> None:
    calls = AsyncMock(spec=IncidentCalls)
    calls.reboot_host.side_effect = HostSilentError("the worker did not answer", took=took)
    calls.look.return_value = DOWN
    calls.wait_for_boot.return_value = BACK
    end = await RungRunner(calls, IncidentPolicy(), NODE, 8, lambda _: None, lambda _: None).run(INTENT, DOWN)
    assert end.proven
    assert calls.reboot_instance.await_count == asked_of_ec2


async def test_an_order_that_led_to_nothing_is_given_from_outside_in_the_end() -> None:
    calls = AsyncMock(spec=IncidentCalls)
    calls.reboot_host.side_effect = HostSilentError("the worker did not answer", took=True)
    calls.wait_for_boot.side_effect = [DOWN, BACK]
    end = await RungRunner(calls, IncidentPolicy(), NODE, 8, lambda _: None, lambda _: None).run(INTENT, DOWN)
    assert end.proven
    assert calls.reboot_instance.await_count == 1
