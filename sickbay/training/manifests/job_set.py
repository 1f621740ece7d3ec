"""JobSets (jobset.x-k8s.io/v1alpha2): the replicated job of the workers is what grows, shrinks and is watched.

The worker is the replicated job named `worker` or `node`, else the one with the most pods. The others (a coordinator, a
data service) are taken as they are, on the attempt's nodes.
"""

from typing import Any, Final

from sickbay.training.attempts import AttemptPlan
from sickbay.training.job import TrainingSpec
from sickbay.training.manifests.adapter import Adapter, ApiKind, Manifest
from sickbay.training.manifests.attempt import check_pod, object_of, pod_template, positive
from sickbay.training.manifests.indexed_job import INDEX

WORKERS: Final = ("worker", "workers", "node")
GLOBAL_INDEX: Final = "jobset.sigs.k8s.io/job-global-index"


class JobSet:
    """The adapter."""

    api = ApiKind(group="jobset.x-k8s.io", version="v1alpha2", kind="JobSet", plural="jobsets")
    rank_labels: tuple[str, ...] = (INDEX, GLOBAL_INDEX)

    def check(self, manifest: Manifest) -> tuple[str, ...]:
        """Replicated jobs with a size, and no restarts of its own."""
        spec = manifest.get("spec")
        jobs = spec.get("replicatedJobs") if isinstance(spec, dict) else None
        if not isinstance(spec, dict) or not isinstance(jobs, list) or not jobs:
            return ("spec.replicatedJobs is missing",)
        problems: list[str] = []
        for number, job in enumerate(jobs):
            path = f"spec.replicatedJobs[{number}].template.spec"
            inner = _inner(job)
            problems += check_pod(inner.get("template"), f"{path}.template")
            if inner.get("backoffLimit", 0) != 0:
                problems.append(f"{path}.backoffLimit must be 0 or left out: the workflow restarts whole attempts")
        if (spec.get("failurePolicy") or {}).get("maxRestarts", 0) != 0:
            problems.append("spec.failurePolicy.maxRestarts must be 0 or left out: the workflow keeps the budgets")
        if "ttlSecondsAfterFinished" in spec:
            problems.append("spec.ttlSecondsAfterFinished must be left out: it removes pods before their evidence")
        if not problems and not positive(self.nodes_of(manifest)):
            problems.append("spec.replicatedJobs: none of them has pods")
        return tuple(problems)

    def nodes_of(self, manifest: Manifest) -> int:
        """Pods of the workers."""
        job = _worker(manifest["spec"]["replicatedJobs"])
        return int(job.get("replicas", 1)) * int(_inner(job).get("parallelism", 1))

    def pod_spec_of(self, manifest: Manifest) -> Manifest:
        """Of the workers."""
        pod: Manifest = _inner(_worker(manifest["spec"]["replicatedJobs"]))["template"]["spec"]
        return pod

    def render(self, spec: TrainingSpec, plan: AttemptPlan) -> dict[str, Any]:
        """Workers to size: by the parallelism of one replica, else by the number of replicas."""
        made = object_of(spec, plan)
        jobs = made["spec"]["replicatedJobs"]
        worker = _worker(jobs)
        for job in jobs:
            inner = job["template"]["spec"]
            inner["backoffLimit"] = 0
            inner["template"] = pod_template(inner["template"], spec, plan)
            inner["template"]["spec"]["restartPolicy"] = "Never"
        inner, replicas = worker["template"]["spec"], int(worker.get("replicas", 1))
        if replicas > 1 and plan.nodes % int(inner.get("parallelism", 1)) == 0:
            worker["replicas"] = plan.nodes // int(inner.get("parallelism", 1))
        else:
            worker["replicas"] = 1
            inner |= {"parallelism": plan.nodes, "completions": plan.nodes, "completionMode": "Indexed"}
        made["spec"]["failurePolicy"] = {"maxRestarts": 0}
        return made


def _worker(jobs: list[dict[str, Any]]) -> dict[str, Any]:
    named = next((job for job in jobs if job.get("name") in WORKERS), None)
    return named or max(jobs, key=lambda job: int(job.get("replicas", 1)) * int(_inner(job).get("parallelism", 1)))


def _inner(job: Manifest) -> dict[str, Any]:
    template = job.get("template")
    inner = template.get("spec") if isinstance(template, dict) else None
    return inner if isinstance(inner, dict) else {}


ADAPTER: Final[Adapter] = JobSet()
