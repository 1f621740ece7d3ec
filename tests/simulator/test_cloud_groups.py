import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError

from simulator.cloud import State, Timings
from tests.simulator.cloud_world import TYPE, World, call, code_of, open_world
from tests.simulator.waiting import SOON, until

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:moto.*", "ignore::DeprecationWarning:botocore.*")

GROUP = "p5-group"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with open_world(Timings(pending=1, shutting_down=1, group_check=2)) as made:
        await made.cloud.create_group(GROUP, TYPE, 2, {"eks:nodegroup-name": "p5"})
        await until(lambda: len(running(made)) == 2)
        yield made


def running(world: World) -> set[str]:
    return {name for name, instance in world.cloud.instances.items() if instance.state is State.RUNNING}


async def members(world: World) -> set[str]:
    reply = await call(world.autoscaling.describe_auto_scaling_groups, AutoScalingGroupNames=[GROUP])
    return {member["InstanceId"] for member in reply["AutoScalingGroups"][0]["Instances"]}


async def leaves(world: World, instance_id: str) -> None:
    """A terminating member is listed until its instance is gone, even beside its successor."""
    async with asyncio.timeout(SOON):
        while instance_id in await members(world):
            continue


async def end(world: World, instance_id: str, decrement: bool = False) -> None:
    await call(
        world.autoscaling.terminate_instance_in_auto_scaling_group,
        InstanceId=instance_id,
        ShouldDecrementDesiredCapacity=decrement,
    )


async def test_an_ended_member_is_first_terminating_and_its_successor_comes_later(world: World) -> None:
    before = await members(world)
    lost = min(before)
    await end(world, lost)
    reply = await call(world.autoscaling.describe_auto_scaling_instances, InstanceIds=[lost])
    assert [member["LifecycleState"] for member in reply["AutoScalingInstances"]] in (["Terminating"], [])
    await until(lambda: len(running(world)) == 2 and lost not in running(world))
    await leaves(world, lost)
    assert len(await members(world) - before) == 1


async def test_the_successor_carries_the_groups_tags(world: World) -> None:
    before = running(world)
    await end(world, min(before))
    await until(lambda: len(running(world) - before) == 1)
    (successor,) = running(world) - before
    tags = world.cloud.instances[successor].tags
    assert tags["eks:nodegroup-name"] == "p5"
    assert tags["aws:autoscaling:groupName"] == GROUP


async def test_a_group_does_not_shrink_below_its_minimum(world: World) -> None:
    with pytest.raises(ClientError) as raised:
        await end(world, min(running(world)), decrement=True)
    assert code_of(raised) == "ValidationError"
    assert len(running(world)) == 2


async def test_a_decrement_above_the_minimum_brings_no_successor(world: World) -> None:
    await call(world.autoscaling.update_auto_scaling_group, AutoScalingGroupName=GROUP, MinSize=1)
    lost = min(running(world))
    await end(world, lost, decrement=True)
    await world.reaches(lost, "terminated")
    reply = await call(world.autoscaling.describe_auto_scaling_groups, AutoScalingGroupNames=[GROUP])
    assert reply["AutoScalingGroups"][0]["DesiredCapacity"] == 1
    assert len(world.cloud.instances) == 2


async def test_an_unknown_member_is_refused(world: World) -> None:
    with pytest.raises(ClientError) as raised:
        await end(world, "i-0123456789abcdef0")
    assert code_of(raised) == "ValidationError"


async def test_a_member_called_unhealthy_is_replaced(world: World) -> None:
    lost = min(running(world))
    await call(world.autoscaling.set_instance_health, InstanceId=lost, HealthStatus="Unhealthy")
    await until(lambda: lost not in running(world) and len(running(world)) == 2)


async def test_a_member_ended_through_ec2_is_noticed_and_replaced(world: World) -> None:
    lost = min(running(world))
    await call(world.ec2.terminate_instances, InstanceIds=[lost])
    await until(lambda: lost not in running(world) and len(running(world)) == 2)
    await leaves(world, lost)


async def test_with_launching_suspended_no_successor_comes_until_it_is_resumed(world: World) -> None:
    await call(world.autoscaling.suspend_processes, AutoScalingGroupName=GROUP, ScalingProcesses=["Launch"])
    lost = min(running(world))
    await end(world, lost)
    await world.reaches(lost, "terminated")
    assert len(world.cloud.instances) == 2
    await call(world.autoscaling.resume_processes, AutoScalingGroupName=GROUP, ScalingProcesses=["Launch"])
    await until(lambda: len(running(world)) == 2)


async def test_without_capacity_the_successor_waits(world: World) -> None:
    world.cloud.refuse_capacity(datetime.now(UTC) + timedelta(hours=1))
    lost = min(running(world))
    await end(world, lost)
    await world.reaches(lost, "terminated")
    assert len(world.cloud.instances) == 2
    world.cloud.refuse_capacity(datetime.now(UTC))
    await until(lambda: len(running(world)) == 2)


async def test_a_group_ends_even_a_member_that_is_protected_against_ec2s_own_call(world: World) -> None:
    lost = min(running(world))
    world.cloud.protect(lost)
    await end(world, lost)
    await world.reaches(lost, "terminated")
