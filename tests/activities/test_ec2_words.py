from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.stub import Stubber
from temporalio.exceptions import ApplicationError

from activities.aws_errors import ec2_client
from activities.ec2_words import BATCH, read_words, words_of
from sickbay.cloud_words import CheckedPart

from .aws_servers import REGION, aws_credentials, aws_url, ec2

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

__all__ = ["aws_credentials", "aws_url", "ec2"]

SINCE = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
INSTANCE = "i-0123456789abcdef0"
UNKNOWN = "i-0fedcba9876543210"


@pytest.fixture
def stub(ec2: "EC2Client") -> Iterator[Stubber]:
    """Answers that moto cannot give, each asked for exactly once and in order."""
    with Stubber(ec2) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


def launch(ec2: "EC2Client", count: int) -> list[str]:
    image = ec2.register_image(Name="ours")["ImageId"]
    started = ec2.run_instances(ImageId=image, MinCount=count, MaxCount=count, InstanceType="p5.48xlarge")
    return [instance["InstanceId"] for instance in started["Instances"]]


def statuses(*instance_ids: str) -> dict[str, object]:
    return {"InstanceStatuses": [{"InstanceId": each, "SystemStatus": {"Status": "ok"}} for each in instance_ids]}


def described(**interfaces: list[str]) -> dict[str, object]:
    instances = [
        {"InstanceId": each.replace("_", "-"), "NetworkInterfaces": [{"InterfaceType": kind} for kind in kinds]}
        for each, kinds in interfaces.items()
    ]
    return {"Reservations": [{"Instances": instances}]}


def test_every_instance_has_an_answer_with_its_checks(ec2: "EC2Client") -> None:
    wanted = launch(ec2, 3)
    answers = read_words(ec2, wanted)
    assert sorted(said.instance_id for said in answers) == sorted(wanted)
    assert {(check.part, check.status) for check in answers[0].checks} >= {
        (CheckedPart.SYSTEM, "ok"),
        (CheckedPart.INSTANCE, "ok"),
    }
    assert answers[0].efa_attached == 0


def test_an_id_that_ec2_does_not_know_hides_no_other(ec2: "EC2Client") -> None:
    wanted = launch(ec2, 2)
    answers = read_words(ec2, [*wanted, UNKNOWN])
    assert sorted(said.instance_id for said in answers) == sorted(wanted)


def test_of_unknown_ids_alone_nothing_is_said(ec2: "EC2Client") -> None:
    assert read_words(ec2, [UNKNOWN]) == ()
    assert read_words(ec2, []) == ()


def test_efa_interfaces_of_both_types_count_and_others_do_not(ec2: "EC2Client", stub: Stubber) -> None:
    stub.add_response("describe_instance_status", statuses(INSTANCE))
    kinds = ["interface", "efa", "efa-only", "efa"]
    stub.add_response("describe_instances", described(**{INSTANCE.replace("-", "_"): kinds}))
    assert read_words(ec2, [INSTANCE])[0].efa_attached == 3


def test_an_instance_without_a_description_has_no_count(ec2: "EC2Client", stub: Stubber) -> None:
    stub.add_response("describe_instance_status", statuses(INSTANCE))
    stub.add_response("describe_instances", described())
    assert read_words(ec2, [INSTANCE])[0].efa_attached is None


def test_a_fleet_is_asked_for_in_batches(ec2: "EC2Client", stub: Stubber) -> None:
    fleet = [f"i-{number:017x}" for number in range(BATCH + 1)]
    for batch in (fleet[:BATCH], fleet[BATCH:]):
        ids = {"InstanceIds": batch}
        stub.add_response("describe_instance_status", statuses(*batch), {**ids, "IncludeAllInstances": True})
        stub.add_response("describe_instances", described(), ids)
    assert len(read_words(ec2, reversed(fleet))) == BATCH + 1


@pytest.mark.parametrize(
    ("code", "kind"), [("RequestLimitExceeded", "aws-throttled"), ("UnauthorizedOperation", "aws-policy")]
)
def test_a_refusal_of_either_call_is_no_answer_at_all(ec2: "EC2Client", stub: Stubber, code: str, kind: str) -> None:
    stub.add_response("describe_instance_status", statuses(INSTANCE))
    stub.add_client_error("describe_instances", code, http_status_code=400)
    with pytest.raises(ApplicationError) as raised:
        read_words(ec2, [INSTANCE])
    assert raised.value.type == kind


def test_without_credentials_the_refusal_says_so(aws_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    # boto3 keeps the credentials that it found first for the whole process.
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    client = ec2_client(REGION, aws_url)
    with pytest.raises(ApplicationError, match="Configure AWS"):
        read_words(client, [INSTANCE])
    client.close()


def test_checks_and_events_are_read_with_their_times() -> None:
    failed = {"Name": "reachability", "Status": "failed", "ImpairedSince": SINCE}
    said = words_of(
        {
            "InstanceId": INSTANCE,
            "InstanceStatus": {"Status": "impaired", "Details": [failed]},  # type: ignore[list-item]
            "AttachedEbsStatus": {"Status": "ok"},
            "Events": [
                {
                    "Code": "instance-stop",
                    "Description": "soon",
                    "NotBefore": SINCE,
                    "InstanceEventId": "instance-event-1",
                }
            ],
        }
    )
    assert [(check.part, check.failed, check.impaired_since) for check in said.checks] == [
        (CheckedPart.INSTANCE, True, SINCE),
        (CheckedPart.EBS, False, None),
    ]
    assert [(event.code, event.not_before, event.finished) for event in said.events] == [
        ("instance-stop", SINCE, False)
    ]


def test_an_empty_answer_says_nothing() -> None:
    said = words_of({})
    assert (said.checks, said.events, said.efa_attached) == ((), (), None)
