from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ReadTimeoutError
from botocore.stub import Stubber
from temporalio.exceptions import ApplicationError

from activities.ec2 import TAG_REBOOT, Ec2Activities, InstanceCall, InstanceRef, InstanceState

from .aws_servers import aws_credentials, aws_url, ec2

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

__all__ = ["aws_credentials", "aws_url", "ec2"]

INSTANCE = "i-0123456789abcdef0"


@pytest.fixture
def instance(ec2: "EC2Client") -> str:
    """A running instance."""
    image = ec2.register_image(Name="ours")["ImageId"]
    started = ec2.run_instances(ImageId=image, MinCount=1, MaxCount=1, InstanceType="p5.48xlarge")
    return started["Instances"][0]["InstanceId"]


@pytest.fixture
def stub(ec2: "EC2Client") -> Iterator[Stubber]:
    """Answers that moto cannot give."""
    with Stubber(ec2) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


def call(instance_id: str = INSTANCE, attempt: int = 1) -> InstanceCall:
    return InstanceCall(instance_id=instance_id, incident_id="incident-demo-i-1", attempt=attempt)


def described(state: str) -> dict[str, object]:
    return {"Reservations": [{"Instances": [{"InstanceId": INSTANCE, "State": {"Name": state}}]}]}


def test_a_running_instance_is_seen_with_its_checks(ec2: "EC2Client", instance: str) -> None:
    status = Ec2Activities(ec2).observe_instance(InstanceRef(instance_id=instance))
    assert (status.state, status.system_status, status.instance_status) == (InstanceState.RUNNING, "ok", "ok")
    assert status.impaired_since is None


def test_an_instance_that_ec2_does_not_know_is_gone(ec2: "EC2Client") -> None:
    assert Ec2Activities(ec2).observe_instance(InstanceRef(instance_id=INSTANCE)).state is InstanceState.GONE


def test_an_impaired_instance_tells_since_when_and_what_is_scheduled(ec2: "EC2Client", stub: Stubber) -> None:
    since = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
    failed = {"Name": "reachability", "Status": "failed", "ImpairedSince": since}
    events = [
        {"Code": "system-reboot", "Description": "[Completed] old news"},
        {"Code": "instance-retirement", "Description": "The instance runs on degraded hardware", "NotBefore": since},
    ]
    stub.add_response("describe_instances", described("running"))
    stub.add_response(
        "describe_instance_status",
        {
            "InstanceStatuses": [
                {
                    "InstanceId": INSTANCE,
                    "SystemStatus": {"Status": "impaired", "Details": [failed]},
                    "InstanceStatus": {"Status": "ok", "Details": [{"Name": "reachability", "Status": "passed"}]},
                    "Events": events,
                }
            ]
        },
    )
    status = Ec2Activities(ec2).observe_instance(InstanceRef(instance_id=INSTANCE))
    assert (status.system_status, status.instance_status, status.impaired_since) == ("impaired", "ok", since)
    assert [event.split(":")[0] for event in status.events] == ["instance-retirement"]


def test_a_repeated_reboot_of_one_attempt_is_one_reboot(ec2: "EC2Client", instance: str) -> None:
    activities = Ec2Activities(ec2)
    assert activities.reboot_instance(call(instance)).requested
    again = activities.reboot_instance(call(instance))
    assert (again.requested, again.already) == (False, True)
    assert activities.reboot_instance(call(instance, attempt=2)).requested


def test_a_reboot_of_an_earlier_incident_is_not_this_ones(ec2: "EC2Client", instance: str) -> None:
    activities = Ec2Activities(ec2)
    earlier, later = (
        call(instance).model_copy(update={"decided_at": datetime(2026, 11, day, tzinfo=UTC)}) for day in (1, 8)
    )
    assert activities.reboot_instance(earlier).requested
    assert activities.reboot_instance(later).requested
    assert activities.reboot_instance(later).already


def test_a_throttled_reboot_leaves_no_trace_and_says_when_to_try_again(ec2: "EC2Client", stub: Stubber) -> None:
    stub.add_response("describe_instances", described("running"))
    stub.add_response("create_tags", {})
    stub.add_client_error("reboot_instances", "RequestLimitExceeded", http_status_code=503)
    stub.add_response(
        "delete_tags",
        {},
        {"Resources": [INSTANCE], "Tags": [{"Key": TAG_REBOOT, "Value": "incident-demo-i-1/1"}]},
    )
    with pytest.raises(ApplicationError) as refused:
        Ec2Activities(ec2).reboot_instance(call())
    assert (refused.value.type, refused.value.non_retryable) == ("aws-throttled", False)
    assert refused.value.next_retry_delay is not None


def test_a_reboot_without_an_answer_is_not_asked_for_twice(
    ec2: "EC2Client", instance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_answer(**_: object) -> None:
        raise ReadTimeoutError(endpoint_url="http://ec2")

    activities = Ec2Activities(ec2)
    with monkeypatch.context() as patch:
        patch.setattr(ec2, "reboot_instances", no_answer)
        with pytest.raises(ApplicationError) as failed:
            activities.reboot_instance(call(instance))
    assert (failed.value.type, failed.value.non_retryable) == ("aws-transient", False)
    assert activities.reboot_instance(call(instance)).already


@pytest.mark.parametrize("state", ["stopping", "stopped", "shutting-down", "terminated"])
def test_only_a_living_instance_is_rebooted(ec2: "EC2Client", stub: Stubber, state: str) -> None:
    stub.add_response("describe_instances", described(state))
    with pytest.raises(ApplicationError, match=f"is {state} and cannot be rebooted") as refused:
        Ec2Activities(ec2).reboot_instance(call())
    assert refused.value.non_retryable


def test_termination_ends_the_instance_once(ec2: "EC2Client", instance: str) -> None:
    activities = Ec2Activities(ec2)
    assert activities.terminate_instance(call(instance)).requested
    assert activities.observe_instance(InstanceRef(instance_id=instance)).state is InstanceState.TERMINATED
    again = activities.terminate_instance(call(instance))
    assert (again.requested, again.already) == (False, True)


def test_an_instance_that_is_gone_needs_no_termination(ec2: "EC2Client") -> None:
    assert Ec2Activities(ec2).terminate_instance(call()).already


def test_a_protection_is_never_lifted(ec2: "EC2Client", instance: str) -> None:
    ec2.modify_instance_attribute(InstanceId=instance, DisableApiTermination={"Value": True})
    with pytest.raises(ApplicationError) as refused:
        Ec2Activities(ec2).terminate_instance(call(instance))
    assert (refused.value.type, refused.value.non_retryable) == ("aws-policy", True)
    protection = ec2.describe_instance_attribute(InstanceId=instance, Attribute="disableApiTermination")
    assert protection["DisableApiTermination"]["Value"] is True


def test_missing_permission_is_final_and_names_the_call(ec2: "EC2Client", stub: Stubber) -> None:
    stub.add_response("describe_instances", described("running"))
    stub.add_client_error("terminate_instances", "UnauthorizedOperation", "no", http_status_code=403)
    with pytest.raises(ApplicationError, match=f"terminate instance {INSTANCE}: .*UnauthorizedOperation") as refused:
        Ec2Activities(ec2).terminate_instance(call())
    assert refused.value.non_retryable


def test_no_credentials_is_final_and_names_the_cure(ec2: "EC2Client", monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.exceptions import NoCredentialsError

    def no_credentials(**_: object) -> None:
        raise NoCredentialsError

    monkeypatch.setattr(ec2, "describe_instances", no_credentials)
    with pytest.raises(ApplicationError, match="Configure AWS for the controller") as refused:
        Ec2Activities(ec2).observe_instance(InstanceRef(instance_id=INSTANCE))
    assert refused.value.non_retryable
