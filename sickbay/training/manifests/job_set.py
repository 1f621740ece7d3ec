"""JobSets (jobset.x-k8s.io/v1alpha2): the replicated job of the workers is what grows, shrinks and is watched.

The worker is the replicated job named `worker` or `node`, else the one with the most pods. The others (a coordinator, a
data service) are taken as they are; their pods count as ranks behind those of the workers, so that no two share one.
"""

from typing import Any, Final

from pydantic import Field

from sickbay.kube_objects import KubeObject
from sickbay.training.attempts import AttemptPlan
from sickbay.training.job import TrainingSpec
from sickbay.training.manifests.adapter import Adapter, ApiKind, Manifest
from sickbay.training.manifests.attempt import ANNOTATION_NODES, object_of, pod_template
from sickbay.training.manifests.indexed_job import INDEX, JobSpec, check_job, seal_job
from sickbay.training.manifests.shapes import Count

WORKERS: Final = ("worker", "workers", "node")


class _JobTemplate(KubeObject):
    spec: JobSpec


class _ReplicatedJob(KubeObject):
    name: str
    replicas: Count = 1
    template: _JobTemplate


class _FailurePolicy(KubeObject):
    max_restarts: Count = 0


class _Spec(KubeObject):
    replicated_jobs: tuple[_ReplicatedJob, ...] = Field(min_length=1)
    failure_policy: _FailurePolicy = _FailurePolicy()


class _JobSet(KubeObject):
    spec: _Spec


class JobSet:
    """The adapter."""

    api = ApiKind(group="jobset.x-k8s.io", version="v1alpha2", kind="JobSet", plural="jobsets")
    shape: type[KubeObject] = _JobSet
    rank_labels: tuple[str, ...] = (INDEX,)

    def check(self, manifest: Manifest) -> tuple[str, ...]:
        """Workers with a size, and no restarts of its own."""
        spec = manifest["spec"]
        problems: list[str] = []
        for number, job in enumerate(spec["replicatedJobs"]):
            problems += check_job(job["template"]["spec"], f"spec.replicatedJobs[{number}].template.spec")
        policy = spec.get("failurePolicy") or {}
        if policy.get("maxRestarts") or policy.get("rules"):
            problems.append(
                "spec.failurePolicy must be left out, with its maxRestarts and rules: the workflow keeps the budgets"
            )
        if spec.get("ttlSecondsAfterFinished") is not None:
            problems.append("spec.ttlSecondsAfterFinished must be left out: it removes pods before their evidence")
        worker = _worker(spec["replicatedJobs"])
        if not _pods(worker):
            problems.append(f"spec.replicatedJobs: {worker['name']} has no pods")
        return tuple(problems)

    def nodes_of(self, manifest: Manifest) -> int:
        """Pods of the workers."""
        return _pods(_worker(manifest["spec"]["replicatedJobs"]))

    def pod_spec_of(self, manifest: Manifest) -> Manifest:
        """Of the workers."""
        pod: Manifest = _worker(manifest["spec"]["replicatedJobs"])["template"]["spec"]["template"]["spec"]
        return pod

    def render(self, spec: TrainingSpec, plan: AttemptPlan) -> dict[str, Any]:
        """Workers to size: by the number of replicas where they are many, else by the parallelism of the one."""
        made = object_of(spec, plan)
        jobs = made["spec"]["replicatedJobs"]
        worker = _worker(jobs)
        _resize(worker, plan.nodes)
        total = plan.nodes
        for job in jobs:
            inner = job["template"]["spec"]
            behind, stride = (0 if job is worker else total), _parallelism(job)
            seal_job(inner, pod_template(inner["template"], spec, plan, rank_offset=behind, rank_stride=stride))
            total += 0 if job is worker else _pods(job)
        made["metadata"]["annotations"][ANNOTATION_NODES] = str(total)
        made["spec"]["failurePolicy"] = {"maxRestarts": 0}
        return made


def _worker(jobs: Any) -> Any:
    named = next((job for job in jobs if job["name"] in WORKERS), None)
    return named or max(jobs, key=_pods)


def _pods(job: Manifest) -> int:
    return _replicas(job) * _parallelism(job)


def _replicas(job: Manifest) -> int:
    replicas = job.get("replicas")
    return 1 if replicas is None else int(replicas)


def _parallelism(job: Manifest) -> int:
    parallelism = job["template"]["spec"].get("parallelism")
    return 1 if parallelism is None else int(parallelism)


def _resize(worker: dict[str, Any], nodes: int) -> None:
    if _replicas(worker) > 1 and nodes % _parallelism(worker) == 0:
        worker["replicas"] = nodes // _parallelism(worker)
        return
    worker["replicas"] = 1
    worker["template"]["spec"] |= {"parallelism": nodes, "completions": nodes, "completionMode": "Indexed"}


ADAPTER: Final[Adapter] = JobSet()
