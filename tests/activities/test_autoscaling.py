from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from botocore.stub import Stubber
from temporalio.exceptions import ApplicationError

from activities.autoscaling import AutoScalingActivities, MemberReplacement, MembershipQuery

from .aws_servers import REGION, autoscaling, aws_credentials, aws_url, ec2

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_ec2 import EC2Client

__all__ = ["autoscaling", "aws_credentials", "aws_url", "ec2"]

GROUP = "p5-group"


@pytest.fixture
def member(ec2: "EC2Client", autoscaling: "AutoScalingClient") -> Iterator[str]:
    """The one instance of a group."""
    image = ec2.register_image(Name="ours")["ImageId"]
    autoscaling.create_launch_configuration(LaunchConfigurationName=GROUP, ImageId=image, InstanceType="p5.48xlarge")
    autoscaling.create_auto_scaling_group(
        AutoScalingGroupName=GROUP,
        LaunchConfigurationName=GROUP,
        MinSize=1,
        MaxSize=2,
        AvailabilityZones=[f"{REGION}a"],
    )
    (instance_id,) = members(autoscaling)
    yield instance_id
    autoscaling.delete_auto_scaling_group(AutoScalingGroupName=GROUP, ForceDelete=True)
    autoscaling.delete_launch_configuration(LaunchConfigurationName=GROUP)


def members(client: "AutoScalingClient") -> tuple[str, ...]:
    (group,) = client.describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP])["AutoScalingGroups"]
    return tuple(instance["InstanceId"] for instance in group["Instances"])


def replacement(instance_id: str, group: str = GROUP) -> MemberReplacement:
    return MemberReplacement(instance_id=instance_id, group=group, incident_id="incident-demo-i-1", attempt=1)


def test_a_member_is_known_with_its_group(autoscaling: "AutoScalingClient", member: str) -> None:
    membership = AutoScalingActivities(autoscaling).observe_membership(MembershipQuery(instance_id=member))
    assert (membership.group, membership.suspended) == (GROUP, ())


def test_an_instance_of_no_group_is_told_as_such(autoscaling: "AutoScalingClient") -> None:
    membership = AutoScalingActivities(autoscaling).observe_membership(MembershipQuery(instance_id="i-0aa"))
    assert membership.group == ""


def test_replacing_a_member_keeps_the_size_of_the_group(autoscaling: "AutoScalingClient", member: str) -> None:
    activities = AutoScalingActivities(autoscaling)
    assert activities.replace_member(replacement(member)).requested
    (successor,) = members(autoscaling)
    assert successor != member


def test_a_member_that_left_is_not_replaced_again(autoscaling: "AutoScalingClient", member: str) -> None:
    activities = AutoScalingActivities(autoscaling)
    activities.replace_member(replacement(member))
    (successor,) = members(autoscaling)
    assert activities.replace_member(replacement(member)).already
    assert members(autoscaling) == (successor,)


def test_a_member_that_is_terminating_is_left_to_its_group(autoscaling: "AutoScalingClient") -> None:
    details = {
        "InstanceId": "i-0aa",
        "AutoScalingGroupName": GROUP,
        "AvailabilityZone": f"{REGION}a",
        "LifecycleState": "Terminating:Wait",
        "HealthStatus": "UNHEALTHY",
        "ProtectedFromScaleIn": False,
    }
    with Stubber(autoscaling) as stub:
        stub.add_response("describe_auto_scaling_instances", {"AutoScalingInstances": [details]})
        assert AutoScalingActivities(autoscaling).replace_member(replacement("i-0aa")).already


def test_a_group_that_would_not_launch_loses_no_member(autoscaling: "AutoScalingClient", member: str) -> None:
    autoscaling.suspend_processes(AutoScalingGroupName=GROUP, ScalingProcesses=["Launch"])
    activities = AutoScalingActivities(autoscaling)
    assert activities.observe_membership(MembershipQuery(instance_id=member)).suspended == ("Launch",)
    with pytest.raises(ApplicationError, match="has suspended Launch") as refused:
        activities.replace_member(replacement(member))
    assert refused.value.non_retryable
    assert members(autoscaling) == (member,)


def test_a_member_of_another_group_is_not_touched(autoscaling: "AutoScalingClient", member: str) -> None:
    with pytest.raises(ApplicationError, match="is now in group p5-group, not in old-group") as refused:
        AutoScalingActivities(autoscaling).replace_member(replacement(member, group="old-group"))
    assert refused.value.non_retryable
    assert members(autoscaling) == (member,)
