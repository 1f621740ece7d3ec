"""Asks EC2 how many instances stand: status checks, scheduled events, attached EFA interfaces.

Called by `workers.cloud_watch` for all GPU nodes at once; `activities.ec2` reads one answer with it. Synchronous, since
boto3 is: callers run it in a thread. What the answers mean is `sickbay.cloud_words`'s affair.

One unknown id makes EC2 refuse a whole call, and a fleet always has a node whose instance is just gone. A refused batch
is therefore asked again in halves until the unknown ones are found; they have no answer, and nothing is said of them.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from botocore.exceptions import ClientError

from activities.aws_errors import aws_call, kind_of
from sickbay.aws_errors import AwsErrorKind
from sickbay.cloud_words import CheckedPart, InstanceWords, ScheduledEvent, StatusCheck

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import (
        EbsStatusSummaryTypeDef,
        InstanceStatusEventTypeDef,
        InstanceStatusSummaryTypeDef,
        InstanceStatusTypeDef,
        InstanceTypeDef,
    )

BATCH: Final = 100
"""Ids of one call; DescribeInstanceStatus takes no more."""

EFA_TYPES: Final = ("efa", "efa-only")
"""Types of network interfaces that bring an EFA device to the host."""

_Item = TypeVar("_Item")


def read_words(client: "EC2Client", instance_ids: Iterable[str]) -> tuple[InstanceWords, ...]:
    """What EC2 says of these instances, those that it does not know left out.

    Raises ApplicationError of type `aws-<kind>` where EC2 refuses or is silent; part of an answer is no answer.
    """
    found: list[InstanceWords] = []
    ids = sorted(set(instance_ids))
    for start in range(0, len(ids), BATCH):
        batch = ids[start : start + BATCH]
        with aws_call(f"read the status of {len(batch)} instances"):
            statuses = _known(lambda wanted: _statuses(client, wanted), batch)
        with aws_call(f"read the network interfaces of {len(batch)} instances"):
            described = _known(lambda wanted: _instances(client, wanted), batch)
        attached = {instance["InstanceId"]: efa_interfaces(instance) for instance in described}
        found += [words_of(status, attached.get(status["InstanceId"])) for status in statuses]
    return tuple(found)


def words_of(status: "InstanceStatusTypeDef", efa_attached: int | None = None) -> InstanceWords:
    """One entry of DescribeInstanceStatus in our words."""
    checks = (
        (CheckedPart.SYSTEM, status.get("SystemStatus")),
        (CheckedPart.INSTANCE, status.get("InstanceStatus")),
        (CheckedPart.EBS, status.get("AttachedEbsStatus")),
    )
    return InstanceWords(
        instance_id=status.get("InstanceId", ""),
        checks=tuple(_check(part, summary) for part, summary in checks if summary is not None),
        events=tuple(_event(event) for event in status.get("Events", [])),
        efa_attached=efa_attached,
    )


def efa_interfaces(instance: "InstanceTypeDef") -> int:
    """How many network interfaces of an instance are EFA ones."""
    return sum(interface.get("InterfaceType") in EFA_TYPES for interface in instance.get("NetworkInterfaces", []))


def _statuses(client: "EC2Client", ids: Sequence[str]) -> "list[InstanceStatusTypeDef]":
    pages = client.get_paginator("describe_instance_status").paginate(InstanceIds=list(ids), IncludeAllInstances=True)
    return [status for page in pages for status in page["InstanceStatuses"]]


def _instances(client: "EC2Client", ids: Sequence[str]) -> "list[InstanceTypeDef]":
    pages = client.get_paginator("describe_instances").paginate(InstanceIds=list(ids))
    return [instance for page in pages for group in page["Reservations"] for instance in group.get("Instances", [])]


def _known(ask: Callable[[Sequence[str]], list[_Item]], ids: Sequence[str]) -> list[_Item]:
    """The answers about those of the ids that EC2 knows."""
    try:
        return ask(ids)
    except ClientError as error:
        if kind_of(error) is not AwsErrorKind.GONE:
            raise
    if len(ids) == 1:
        return []
    middle = len(ids) // 2
    return [*_known(ask, ids[:middle]), *_known(ask, ids[middle:])]


def _check(part: CheckedPart, summary: "InstanceStatusSummaryTypeDef | EbsStatusSummaryTypeDef") -> StatusCheck:
    since = [detail["ImpairedSince"] for detail in summary.get("Details", []) if "ImpairedSince" in detail]
    return StatusCheck(part=part, status=summary.get("Status", ""), impaired_since=min(since, default=None))


def _event(event: "InstanceStatusEventTypeDef") -> ScheduledEvent:
    return ScheduledEvent(
        code=event.get("Code", ""),
        event_id=event.get("InstanceEventId", ""),
        description=event.get("Description", ""),
        not_before=event.get("NotBefore"),
        not_before_deadline=event.get("NotBeforeDeadline"),
    )
