import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from simulator.cloud import ScheduledEvent, Timings
from simulator.machine import Power
from tests.simulator.cloud_world import ONE_TRY, TYPE, World, aws_session, call, code_of, open_world
from tests.simulator.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:moto.*", "ignore::DeprecationWarning:botocore.*")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """States that pass within milliseconds."""
    async with open_world(Timings(pending=1, shutting_down=1, stopping=1, group_check=2)) as made:
        yield made


@pytest.fixture
async def slow_world() -> AsyncIterator[World]:
    """States that do not pass while a test looks at them."""
    async with open_world(Timings(pending=1, shutting_down=10_000, stopping=10_000, group_check=10_000)) as made:
        yield made


async def test_a_new_instance_is_pending_then_runs_on_a_started_machine(world: World) -> None:
    reply = await call(world.ec2.run_instances, ImageId="ami-12345678", InstanceType=TYPE, MinCount=1, MaxCount=1)
    assert reply["Instances"][0]["State"]["Name"] == "pending"
    instance_id = reply["Instances"][0]["InstanceId"]
    await world.reaches(instance_id, "running")
    assert await world.state(instance_id) == "running"
    assert world.machine(instance_id).power is Power.RUNNING


async def test_the_same_client_token_launches_once(world: World) -> None:
    async def launch(kind: str) -> str:
        reply = await call(
            world.ec2.run_instances,
            ImageId="ami-12345678",
            InstanceType=kind,
            MinCount=1,
            MaxCount=1,
            ClientToken="incident-1-attempt-1",
        )
        return reply["Instances"][0]["InstanceId"]

    assert await launch(TYPE) == await launch(TYPE)
    assert len(world.cloud.instances) == 1
    with pytest.raises(ClientError) as raised:
        await launch("p4d.24xlarge")
    assert code_of(raised) == "IdempotentParameterMismatch"


async def test_a_terminated_instance_shuts_down_first_and_is_forgotten_in_the_end() -> None:
    async with open_world(Timings(pending=1, shutting_down=60, terminated_visible=60)) as world:
        instance_id = await world.running()
        machine = world.machine(instance_id)
        reply = await call(world.ec2.terminate_instances, InstanceIds=[instance_id])
        change = reply["TerminatingInstances"][0]
        assert (change["PreviousState"]["Name"], change["CurrentState"]["Name"]) == ("running", "shutting-down")
        assert await world.state(instance_id) == "shutting-down"
        await world.reaches(instance_id, "terminated")
        assert await world.state(instance_id) == "terminated"
        assert machine.power is Power.OFF
        await until(lambda: instance_id not in world.cloud.instances)
        with pytest.raises(ClientError) as raised:
            await world.state(instance_id)
        assert code_of(raised) == "InvalidInstanceID.NotFound"


async def test_terminating_twice_is_one_termination(slow_world: World) -> None:
    instance_id = await slow_world.running()
    await call(slow_world.ec2.terminate_instances, InstanceIds=[instance_id])
    again = await call(slow_world.ec2.terminate_instances, InstanceIds=[instance_id])
    assert again["TerminatingInstances"][0]["PreviousState"]["Name"] == "shutting-down"


async def test_a_reboot_boots_the_machine_once_more_and_leaves_the_state_running(world: World) -> None:
    instance_id = await world.running()
    before = world.machine(instance_id).boot_id
    await call(world.ec2.reboot_instances, InstanceIds=[instance_id])
    assert world.machine(instance_id).boot_id not in ("", before)
    assert await world.state(instance_id) == "running"


async def test_an_ending_instance_takes_no_reboot_no_stop_and_no_start(slow_world: World) -> None:
    instance_id = await slow_world.running()
    await call(slow_world.ec2.terminate_instances, InstanceIds=[instance_id])
    for action in (slow_world.ec2.reboot_instances, slow_world.ec2.stop_instances, slow_world.ec2.start_instances):
        with pytest.raises(ClientError) as raised:
            await call(action, InstanceIds=[instance_id])
        assert code_of(raised) == "IncorrectInstanceState"


async def test_stop_and_start_take_time_and_power_the_machine(world: World) -> None:
    instance_id = await world.running()
    await call(world.ec2.stop_instances, InstanceIds=[instance_id])
    await world.reaches(instance_id, "stopped")
    assert world.machine(instance_id).power is Power.OFF
    await call(world.ec2.start_instances, InstanceIds=[instance_id])
    await world.reaches(instance_id, "running")
    assert world.machine(instance_id).power is Power.RUNNING


async def test_a_stopping_instance_cannot_be_started_yet(slow_world: World) -> None:
    instance_id = await slow_world.running()
    await call(slow_world.ec2.stop_instances, InstanceIds=[instance_id])
    with pytest.raises(ClientError) as raised:
        await call(slow_world.ec2.start_instances, InstanceIds=[instance_id])
    assert code_of(raised) == "IncorrectInstanceState"


@pytest.mark.parametrize(
    ("instance_id", "code"),
    [("node-7", "InvalidInstanceID.Malformed"), ("i-0123456789abcdef0", "InvalidInstanceID.NotFound")],
)
async def test_ids_that_cannot_be_and_ids_that_are_not_are_told_apart(
    world: World, instance_id: str, code: str
) -> None:
    for action in (world.ec2.describe_instances, world.ec2.describe_instance_status, world.ec2.reboot_instances):
        with pytest.raises(ClientError) as raised:
            await call(action, InstanceIds=[instance_id])
        assert code_of(raised) == code


async def test_status_checks_show_what_fails_and_since_when(world: World) -> None:
    instance_id = await world.running()
    since = datetime(2026, 5, 1, 12, tzinfo=UTC)
    world.cloud.impair(instance_id, system_since=since)
    status = (await call(world.ec2.describe_instance_status, InstanceIds=[instance_id]))["InstanceStatuses"][0]
    assert status["SystemStatus"]["Status"] == "impaired"
    assert status["SystemStatus"]["Details"][0]["ImpairedSince"] == since
    assert status["InstanceStatus"]["Status"] == "ok"
    world.cloud.impair(instance_id)
    world.machine(instance_id).impaired = True
    status = (await call(world.ec2.describe_instance_status, InstanceIds=[instance_id]))["InstanceStatuses"][0]
    assert (status["SystemStatus"]["Status"], status["InstanceStatus"]["Status"]) == ("ok", "impaired")


async def test_status_of_instances_that_do_not_run_comes_only_when_asked_for(slow_world: World) -> None:
    instance_id = await slow_world.running()
    await call(slow_world.ec2.terminate_instances, InstanceIds=[instance_id])
    assert (await call(slow_world.ec2.describe_instance_status, InstanceIds=[instance_id]))["InstanceStatuses"] == []
    every = await call(slow_world.ec2.describe_instance_status, InstanceIds=[instance_id], IncludeAllInstances=True)
    assert every["InstanceStatuses"][0]["InstanceState"]["Name"] == "shutting-down"
    assert every["InstanceStatuses"][0]["InstanceStatus"]["Status"] == "not-applicable"


async def test_scheduled_events_show_in_the_status(world: World) -> None:
    instance_id = await world.running()
    due = datetime(2027, 1, 1, tzinfo=UTC)
    event = ScheduledEvent(event_id="instance-event-1", code="instance-retirement", description="host", not_before=due)
    world.cloud.schedule_event(instance_id, event)
    status = (await call(world.ec2.describe_instance_status, InstanceIds=[instance_id]))["InstanceStatuses"][0]
    assert status["Events"][0]["Code"] == "instance-retirement"
    assert status["Events"][0]["NotBefore"] == due


async def test_attached_efa_interfaces_and_a_volume_that_cannot_be_reached_show(world: World) -> None:
    instance_id = await world.running()
    since = datetime(2027, 1, 1, tzinfo=UTC)
    world.cloud.attach_efa(instance_id, 4)
    world.cloud.impair(instance_id, ebs_since=since)
    described = await call(world.ec2.describe_instances, InstanceIds=[instance_id])
    interfaces = described["Reservations"][0]["Instances"][0]["NetworkInterfaces"]
    assert [interface.get("InterfaceType") for interface in interfaces].count("efa") == 4
    status = (await call(world.ec2.describe_instance_status, InstanceIds=[instance_id]))["InstanceStatuses"][0]
    assert status["AttachedEbsStatus"]["Status"] == "impaired"
    assert status["AttachedEbsStatus"]["Details"][0]["ImpairedSince"] == since


async def test_throttling_refuses_as_many_calls_as_asked(world: World) -> None:
    world.cloud.throttle(1)
    with pytest.raises(ClientError) as raised:
        await call(world.ec2.describe_instances)
    assert code_of(raised) == "RequestLimitExceeded"
    await call(world.ec2.describe_instances)
    world.cloud.throttle(1, "DescribeAutoScalingInstances")
    await call(world.ec2.describe_instances)
    with pytest.raises(ClientError) as raised:
        await call(world.autoscaling.describe_auto_scaling_instances)
    assert code_of(raised) == "Throttling"


async def test_missing_capacity_refuses_launches_until_it_is_back(world: World) -> None:
    world.cloud.refuse_capacity(datetime.now(UTC) + timedelta(hours=1))
    with pytest.raises(ClientError) as raised:
        await world.run()
    assert code_of(raised) == "InsufficientInstanceCapacity"
    world.cloud.refuse_capacity(datetime.now(UTC))
    await world.running()


async def test_a_protected_instance_is_not_terminated_until_protection_is_lifted(world: World) -> None:
    instance_id = await world.running()
    world.cloud.protect(instance_id)
    with pytest.raises(ClientError) as raised:
        await call(world.ec2.terminate_instances, InstanceIds=[instance_id])
    assert code_of(raised) == "OperationNotPermitted"
    await call(world.ec2.modify_instance_attribute, InstanceId=instance_id, DisableApiTermination={"Value": False})
    await call(world.ec2.terminate_instances, InstanceIds=[instance_id])
    await world.reaches(instance_id, "terminated")


async def test_a_right_that_was_taken_refuses_the_call_and_does_nothing(world: World) -> None:
    instance_id = await world.running()
    world.cloud.faults.deny("TerminateInstances")
    with pytest.raises(ClientError) as raised:
        await call(world.ec2.terminate_instances, InstanceIds=[instance_id])
    assert code_of(raised) == "UnauthorizedOperation"
    assert await world.state(instance_id) == "running"


async def test_a_dry_run_is_refused_as_having_succeeded(world: World) -> None:
    instance_id = await world.running()
    with pytest.raises(ClientError) as raised:
        await call(world.ec2.reboot_instances, InstanceIds=[instance_id], DryRun=True)
    assert code_of(raised) == "DryRunOperation"
    assert world.machine(instance_id).boots == 1


async def test_a_lost_reply_hides_a_call_that_was_carried_out(world: World) -> None:
    instance_id = await world.running()
    world.cloud.faults.lose_replies("RebootInstances")
    with pytest.raises(BotoCoreError):
        await call(world.ec2.reboot_instances, InstanceIds=[instance_id])
    assert world.machine(instance_id).boots == 2


async def test_objects_of_any_kind_pass_through_to_the_store(world: World) -> None:
    s3 = aws_session().client("s3", endpoint_url=world.cloud.url, config=ONE_TRY)
    where = {"LocationConstraint": world.cloud.region}
    body = bytes(range(256)) * 4096
    await call(s3.create_bucket, Bucket="checkpoints", CreateBucketConfiguration=where)
    await call(s3.put_object, Bucket="checkpoints", Key="job/attempt 1/step=100", Body=body)
    assert (await call(s3.head_object, Bucket="checkpoints", Key="job/attempt 1/step=100"))["ContentLength"] == len(
        body
    )
    got = await call(s3.get_object, Bucket="checkpoints", Key="job/attempt 1/step=100")
    assert await asyncio.to_thread(got["Body"].read) == body
    s3.close()
