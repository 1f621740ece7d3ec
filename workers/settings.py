"""The controller's settings, from the environment: `SICKBAY_` and the field's name in capitals.

Read once by `console.controller`. How to reach Temporal is not here: that is the SDK's own configuration
(`TEMPORAL_ADDRESS`, `TEMPORAL_NAMESPACE`, `TEMPORAL_PROFILE` and the rest). Neither is what to do with a sick node:
that is the policy file's.
"""

import os
import socket
from datetime import timedelta
from pathlib import Path

from pydantic import AliasChoices, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from sickbay.other_agents.judgement import excuses
from sickbay.triage import TriageRules
from sickbay.watch_faults import AgentsExpected, WatchRules
from workers.logging import LogFormat


class ControllerSettings(BaseSettings):
    """Everything that differs between two controllers. All durations are in seconds."""

    model_config = SettingsConfigDict(env_prefix="SICKBAY_", frozen=True, extra="ignore", env_ignore_empty=True)

    cluster: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    """Name of this cluster. Part of every incident's id: two clusters in one Temporal namespace must differ in it, and
    a new name makes strangers of all open incidents."""
    policy_file: Path | None = None
    """The policy; the shipped default where none is named. Read at the start, so that a bad file stops a new
    controller instead of changing an old one."""
    kubeconfig: Path | None = None
    """For a controller outside of its cluster; inside, the pod's service account is used."""
    kube_context: str | None = None
    """Context of the kubeconfig; its current one where none is named."""
    node_selector: str = ""
    """Label selector of the nodes to watch. All by default, since GPU nodes are told by what they report."""

    aws_region: str | None = Field(
        default=None, validation_alias=AliasChoices("SICKBAY_AWS_REGION", "AWS_REGION", "AWS_DEFAULT_REGION")
    )
    """Region of the cluster's instances; AWS's own variables and configuration where ours is not set. EKS sets
    AWS_REGION, which boto3 does not read."""
    aws_endpoint: str | None = None
    """Address of the EC2 and Auto Scaling APIs, for a VPC endpoint or the simulator."""

    leader_election: bool = True
    """Whether the watch asks for a lease first. Off for a single controller without a right to leases, and on a
    developer's machine. Workflow and activity workers run on every replica either way."""
    lease_namespace: str = "sickbay"
    lease_name: str = "sickbay-controller"
    identity: str = Field(default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}")
    """Who holds the lease, and who polls, in Temporal's UI. In a pod the host's name is the pod's."""

    settle_seconds: float = Field(default=60, ge=0)
    """How long Ready must not be True before an incident opens: a kubelet's restart takes seconds. The incident then
    observes for the rest of the policy's tolerance."""
    cooldown_seconds: float = Field(default=60, ge=0)
    """From one incident's end to the next one's start on the same machine, so that a flapping node is contained at
    once but does not make an incident each second."""
    reconcile_seconds: float = Field(default=180, gt=0)
    """Between two looks at all nodes whether they changed or not. It bounds how long a lost event, an orphaned mark or
    a silent agent goes unnoticed."""

    expect_agents: AgentsExpected = AgentsExpected.AUTO
    """Whether a GPU node on which our agent never reported takes no new work: `auto` is yes as soon as one node of the
    cluster has reported. `false` where the agent is meant for some of the GPU nodes only."""
    ignored_conditions: str = ""
    """Other agents' node conditions that are no faults here, separated by commas: a type (`StorageReady`), or a type
    and a reason or word that each of its messages bears (`NetworkingReady:enp1s0f0np0`, for a port without a cable)."""
    cloud_seconds: float = Field(default=60, ge=0)
    """Between two questions to EC2 on status checks, scheduled events and attached EFA interfaces of the GPU nodes,
    which are checked once a minute there; 0 asks nothing. Without AWS credentials nothing is asked either."""

    job_look_seconds: float = Field(default=5, gt=0)
    """Between two looks at a running attempt's pods: what a failed job waits before anybody knows."""
    job_ranks_seconds: float = Field(default=15, gt=0)
    """Between two looks at what its ranks tell."""
    job_slow_seconds: float = Field(default=240, gt=0)
    """How long a rank must hold up its peers before it is told."""
    job_checkpoints_seconds: float = Field(default=30, gt=0)
    """Between two listings of its checkpoints."""

    serve_host: str = "0.0.0.0"
    """Address to serve on: the pod's, since the kubelet and Prometheus ask from outside of it."""
    serve_port: int = Field(default=9464, ge=0, le=65535)
    """Port of `/healthz`, `/readyz` and `/metrics`; 0 takes any free one."""
    temporal_metrics_port: int = Field(default=0, ge=0, le=65535)
    """Port of the Temporal SDK's own Prometheus metrics; 0 leaves them off."""

    max_activities: int = Field(default=50, ge=1)
    """Activities at once on this replica; as many threads serve those that block (AWS calls)."""
    max_cached_workflows: int = Field(default=500, ge=0)
    """Incidents kept in memory, about 80 MB for 1000 (facts: Temporal, 2)."""
    shutdown_seconds: float = Field(default=20, ge=0)
    """How long running activities may finish after SIGTERM; below the pod's terminationGracePeriodSeconds."""

    log_format: LogFormat = LogFormat.JSON
    log_level: str = Field(default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")

    @property
    def triage_rules(self) -> TriageRules:
        """The watch's patience."""
        return TriageRules(
            settle=timedelta(seconds=self.settle_seconds), cooldown=timedelta(seconds=self.cooldown_seconds)
        )

    @property
    def watch_rules(self) -> WatchRules:
        """What counts as a fault for the watch alone."""
        return WatchRules(agents=self.expect_agents, excuses=excuses(self.ignored_conditions))
