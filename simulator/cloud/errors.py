"""Errors as AWS names them.

Raised by the behaviours of this package, turned into an HTTP answer by `simulator.cloud.wire`. Codes and their HTTP
statuses follow AWS's published error lists (facts: remediation, 3.3).
"""


class AwsError(Exception):
    """A refusal of the simulated cloud."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


def malformed_id(instance_id: str) -> AwsError:
    """An id that no instance can have."""
    return AwsError("InvalidInstanceID.Malformed", f'Invalid id: "{instance_id}"')


def unknown_id(instance_id: str) -> AwsError:
    """An id that no instance has, or has no more."""
    return AwsError("InvalidInstanceID.NotFound", f"The instance ID '{instance_id}' does not exist")


def wrong_state(instance_id: str, state: str) -> AwsError:
    """A call that this state does not allow."""
    return AwsError("IncorrectInstanceState", f"The instance '{instance_id}' is in state '{state}', not usable here")


def protected(instance_id: str) -> AwsError:
    """Termination protection is on."""
    return AwsError(
        "OperationNotPermitted",
        f"The instance '{instance_id}' may not be terminated."
        " Modify its 'disableApiTermination' instance attribute and try again.",
    )


def no_capacity(instance_type: str, zone: str) -> AwsError:
    """No machine of this type is free."""
    return AwsError(
        "InsufficientInstanceCapacity",
        f"There is no {instance_type} capacity in the availability zone {zone} at this time.",
        status=500,
    )


def unauthorized(action: str) -> AwsError:
    """The caller lacks the permission."""
    return AwsError("UnauthorizedOperation", f"You are not authorized to perform this operation: {action}", status=403)


def dry_run_passed() -> AwsError:
    """EC2 reports a dry run that would have worked as an error."""
    return AwsError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", status=412)
