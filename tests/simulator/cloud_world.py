"""A simulated cloud with real boto3 clients, for tests."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from simulator.clock import Clock
from simulator.cloud import CloudServer, Timings
from tests.simulator.fake_machines import FakeMachine, FakeMachines
from tests.simulator.waiting import until

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_ec2 import EC2Client

TYPE = "p5.48xlarge"
ONE_TRY = Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"})


Reply = TypeVar("Reply")


async def call(function: Callable[..., Reply], **arguments: object) -> Reply:
    return await asyncio.to_thread(function, **arguments)


@dataclass
class World:
    cloud: CloudServer
    machines: FakeMachines
    ec2: "EC2Client"
    autoscaling: "AutoScalingClient"

    async def run(self) -> str:
        reply = await call(self.ec2.run_instances, ImageId="ami-12345678", InstanceType=TYPE, MinCount=1, MaxCount=1)
        return reply["Instances"][0]["InstanceId"]

    async def running(self) -> str:
        instance_id = await self.run()
        await self.reaches(instance_id, "running")
        return instance_id

    async def state(self, instance_id: str) -> str:
        reply = await call(self.ec2.describe_instances, InstanceIds=[instance_id])
        return reply["Reservations"][0]["Instances"][0]["State"]["Name"]

    async def reaches(self, instance_id: str, state: str) -> None:
        await until(lambda: instance_id in self.cloud.instances and self.cloud.instances[instance_id].state == state)

    def machine(self, instance_id: str) -> FakeMachine:
        return self.machines.by_node[self.cloud.instances[instance_id].node_name]


@functools.cache
def aws_session() -> boto3.Session:
    """One for all tests, since it keeps the service models that are slow to read."""
    return boto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name="eu-west-1")


@asynccontextmanager
async def open_world(timings: Timings) -> AsyncIterator[World]:
    machines = FakeMachines()
    async with CloudServer(Clock(speed=100), machines, timings=timings) as cloud:
        session = aws_session()
        ec2 = session.client("ec2", endpoint_url=cloud.url, config=ONE_TRY)
        autoscaling = session.client("autoscaling", endpoint_url=cloud.url, config=ONE_TRY)
        yield World(cloud, machines, ec2, autoscaling)
        ec2.close()
        autoscaling.close()


def code_of(raised: pytest.ExceptionInfo[ClientError]) -> str:
    return raised.value.response["Error"]["Code"]
