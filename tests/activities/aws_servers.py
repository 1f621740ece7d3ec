"""A moto server for the EC2 and Auto Scaling tests, started once for all of them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest
from moto.server import ThreadedMotoServer

from activities.aws_errors import autoscaling_client, ec2_client

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_ec2 import EC2Client

REGION: Final = "eu-west-1"


@pytest.fixture(scope="session")
def aws_url() -> Iterator[str]:
    """Address of the server."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def aws_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any credentials: moto takes all."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.delenv("AWS_PROFILE", raising=False)


@pytest.fixture
def ec2(aws_url: str, aws_credentials: None) -> Iterator["EC2Client"]:
    """An EC2 client as the controller makes it."""
    client = ec2_client(REGION, aws_url)
    yield client
    client.close()


@pytest.fixture
def autoscaling(aws_url: str, aws_credentials: None) -> Iterator["AutoScalingClient"]:
    """An Auto Scaling client as the controller makes it."""
    client = autoscaling_client(REGION, aws_url)
    yield client
    client.close()
