"""The simulated AWS: EC2, Auto Scaling and S3 on one local address."""

from simulator.cloud.errors import AwsError
from simulator.cloud.instances import Instance, ScheduledEvent, State, Timings
from simulator.cloud.server import CloudServer

__all__ = ["AwsError", "CloudServer", "Instance", "ScheduledEvent", "State", "Timings"]
