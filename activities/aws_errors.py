"""AWS's errors in Temporal's words: which are final, and when to try again.

Used around every boto3 call of `activities.ec2` and `activities.autoscaling`. The table is `sickbay.aws_errors`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError
from temporalio.exceptions import ApplicationError

from sickbay.aws_errors import AwsErrorKind, classify

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_ec2 import EC2Client

CLIENT_CONFIG: Final = Config(
    connect_timeout=5,
    read_timeout=15,
    # Temporal retries, visibly and for longer; more tries below it would only hide them (facts: remediation, 3.3).
    retries={"mode": "standard", "total_max_attempts": 2},
    user_agent_extra="sickbay",
)


def ec2_client(region: str | None = None, endpoint_url: str | None = None) -> "EC2Client":
    """An EC2 client with deadlines on every call; region and credentials from the usual AWS places if not given."""
    return boto3.client("ec2", region_name=region, endpoint_url=endpoint_url, config=CLIENT_CONFIG)


def autoscaling_client(region: str | None = None, endpoint_url: str | None = None) -> "AutoScalingClient":
    """An Auto Scaling client with deadlines on every call."""
    return boto3.client("autoscaling", region_name=region, endpoint_url=endpoint_url, config=CLIENT_CONFIG)


def kind_of(error: ClientError) -> AwsErrorKind:
    """What kind of failure an error answer of AWS is."""
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return classify(error.response.get("Error", {}).get("Code", ""), status)


@contextmanager
def aws_call(what: str) -> Iterator[None]:
    """Run one AWS call; `what` says in the error's text what could not be done.

    Raises ApplicationError of type `aws-<kind>`, non-retryable where trying again cannot help.
    """
    try:
        yield
    except ClientError as error:
        kind = kind_of(error)
        raise _application_error(f"{what}: {error}", kind) from error
    except (NoCredentialsError, NoRegionError) as error:
        raise _application_error(f"{what}: {error} Configure AWS for the controller.", AwsErrorKind.POLICY) from error
    except BotoCoreError as error:
        raise _application_error(f"{what}: {error}", AwsErrorKind.TRANSIENT) from error


def _application_error(message: str, kind: AwsErrorKind) -> ApplicationError:
    return ApplicationError(
        message, type=f"aws-{kind}", non_retryable=kind.final, next_retry_delay=None if kind.final else kind.retry_after
    )
