"""The EC2 calls that the front answers itself, because moto's answer would be too good to be true."""

from collections.abc import Iterable
from datetime import UTC, datetime
from xml.etree.ElementTree import Element

from simulator.cloud.compute import Compute
from simulator.cloud.errors import AwsError, dry_run_passed
from simulator.cloud.instances import Instance, ScheduledEvent, State, check_instance_id
from simulator.cloud.wire import Call, answer, element
from simulator.machine import Power


class Ec2Actions:
    """EC2's lifecycle and status calls over the ledger."""

    def __init__(self, compute: Compute) -> None:
        self._compute = compute

    async def handle(self, call: Call) -> bytes | None:
        """The answer to a call; None where moto is to answer. Raises AwsError for a refusal."""
        for instance_id in call.listed("InstanceId"):
            check_instance_id(instance_id)
        match call.action:
            case "RebootInstances":
                return await self._reboot(call)
            case "TerminateInstances":
                return self._terminate(call)
            case "StopInstances":
                return self._stop(call)
            case "StartInstances":
                return self._start(call)
            case "DescribeInstanceStatus":
                return self._describe_status(call)
            case _:
                return None

    async def _reboot(self, call: Call) -> bytes:
        instances = self._targets(call)
        for instance in instances:
            await self._compute.reboot(instance)
        return answer(call, element("return", "true"))

    def _terminate(self, call: Call) -> bytes:
        changes = [(instance, self._compute.terminate(instance)) for instance in self._targets(call)]
        return answer(call, _state_changes(changes))

    def _stop(self, call: Call) -> bytes:
        changes = [(instance, self._compute.stop(instance)) for instance in self._targets(call)]
        return answer(call, _state_changes(changes))

    def _start(self, call: Call) -> bytes:
        changes = [(instance, self._compute.start(instance)) for instance in self._targets(call)]
        return answer(call, _state_changes(changes))

    def _describe_status(self, call: Call) -> bytes:
        if call.text("Filter.1.Name"):
            raise AwsError("InvalidParameterValue", "the simulated DescribeInstanceStatus takes no filters")
        wanted = call.listed("InstanceId")
        instances = self._compute.get_all(wanted) if wanted else list(self._compute.instances.values())
        if not call.flag("IncludeAllInstances"):
            instances = [instance for instance in instances if instance.state is State.RUNNING]
        return answer(call, element("instanceStatusSet", *(_status(instance) for instance in instances)))

    def _targets(self, call: Call) -> list[Instance]:
        instances = self._compute.get_all(call.listed("InstanceId"))
        if not instances:
            raise AwsError("MissingParameter", "The request must contain the parameter InstanceId")
        if call.flag("DryRun"):
            raise dry_run_passed()
        return instances


def _state(tag: str, state: State) -> Element:
    return element(tag, element("code", str(state.code)), element("name", state))


def _state_changes(changes: Iterable[tuple[Instance, State]]) -> Element:
    return element(
        "instancesSet",
        *(
            element(
                "item",
                element("instanceId", instance.instance_id),
                _state("currentState", instance.state),
                _state("previousState", before),
            )
            for instance, before in changes
        ),
    )


def _status(instance: Instance) -> Element:
    # The machine tells that it is impaired, but not since when: EC2 would have noticed within the last minute.
    machine_since = datetime.now(UTC) if instance.machine.impaired else None
    return element(
        "item",
        element("instanceId", instance.instance_id),
        element("availabilityZone", instance.zone),
        _state("instanceState", instance.state),
        _check("systemStatus", instance, instance.system_impaired_since),
        _check("instanceStatus", instance, instance.instance_impaired_since or machine_since),
        _check("attachedEbsStatus", instance, instance.ebs_impaired_since),
        element("eventsSet", *(_event(event) for event in instance.events)),
    )


def _check(tag: str, instance: Instance, impaired_since: datetime | None) -> Element:
    if instance.state is not State.RUNNING:
        return element(tag, element("status", "not-applicable"))
    if impaired_since is not None:
        failed = _reachability("failed", element("impairedSince", _stamp(impaired_since)))
        return element(tag, element("status", "impaired"), failed)
    if instance.machine.power is not Power.RUNNING:
        return element(tag, element("status", "initializing"), _reachability("initializing"))
    return element(tag, element("status", "ok"), _reachability("passed"))


def _reachability(status: str, *more: Element) -> Element:
    return element("details", element("item", element("name", "reachability"), element("status", status), *more))


def _event(event: ScheduledEvent) -> Element:
    return element(
        "item",
        element("instanceEventId", event.event_id),
        element("code", event.code),
        element("description", event.description),
        element("notBefore", _stamp(event.not_before)),
    )


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
