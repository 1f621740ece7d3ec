"""Jobs, as far as the simulated job controller reads them."""

from datetime import datetime

from pydantic import Field

from simulator.cluster.objects import Condition, KubeModel, KubeObject


class PodTemplate(KubeModel):
    """The raw template goes into new pods as it stands; only its labels are read."""

    metadata: dict[str, object] = Field(default_factory=dict)
    spec: dict[str, object] = Field(default_factory=dict)


class FailurePolicyCondition(KubeModel):
    """A pod condition that a failure rule matches."""

    type: str
    status: str = "True"


class FailurePolicyRule(KubeModel):
    """What a job does about a failed pod."""

    action: str
    on_pod_conditions: tuple[FailurePolicyCondition, ...] = ()


class FailurePolicy(KubeModel):
    """The rules of a job, the first match wins."""

    rules: tuple[FailurePolicyRule, ...] = ()


class JobSpec(KubeModel):
    """What a job should do."""

    completions: int | None = 1
    parallelism: int = 1
    backoff_limit: int = 6
    pod_failure_policy: FailurePolicy | None = None
    template: PodTemplate = PodTemplate()


class JobStatus(KubeModel):
    """How far a job is."""

    active: int = 0
    ready: int | None = 0
    succeeded: int = 0
    failed: int = 0
    start_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()


class Job(KubeObject):
    """A job."""

    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()
