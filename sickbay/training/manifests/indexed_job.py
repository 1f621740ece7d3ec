"""Indexed Jobs (batch/v1): one pod per index, all at once, restarted by nobody but us."""

from typing import Any, Final

from sickbay.kube_objects import KubeObject
from sickbay.training.attempts import AttemptPlan
from sickbay.training.job import TrainingSpec
from sickbay.training.manifests.adapter import Adapter, ApiKind, Manifest
from sickbay.training.manifests.attempt import check_pod, object_of, pod_template
from sickbay.training.manifests.shapes import Count, PodTemplate

INDEX: Final = "batch.kubernetes.io/job-completion-index"


class JobSpec(KubeObject):
    """What is wished of a Job."""

    parallelism: Count = 1
    completions: Count = 1
    backoff_limit: Count = 0
    template: PodTemplate


class _Job(KubeObject):
    spec: JobSpec


class IndexedJob:
    """The adapter."""

    api = ApiKind(group="batch", version="v1", kind="Job", plural="jobs")
    shape: type[KubeObject] = _Job
    rank_labels: tuple[str, ...] = (INDEX,)

    def check(self, manifest: Manifest) -> tuple[str, ...]:
        """Sizes that agree, and no restarts of Kubernetes' own."""
        spec = manifest["spec"]
        problems = check_job(spec, "spec")
        if not spec.get("parallelism") or spec.get("completions") != spec.get("parallelism"):
            problems.append("spec.completions and spec.parallelism must be the number of nodes, and equal")
        if (spec.get("completionMode") or "Indexed") != "Indexed":
            problems.append("spec.completionMode must be Indexed: a rank needs its index")
        return tuple(problems)

    def nodes_of(self, manifest: Manifest) -> int:
        """`parallelism`."""
        return int(manifest["spec"]["parallelism"])

    def pod_spec_of(self, manifest: Manifest) -> Manifest:
        """Of its template."""
        pod: Manifest = manifest["spec"]["template"]["spec"]
        return pod

    def render(self, spec: TrainingSpec, plan: AttemptPlan) -> dict[str, Any]:
        """All pods at once, and the first failure ends the attempt."""
        made = object_of(spec, plan)
        job = made["spec"]
        job |= {"completionMode": "Indexed", "completions": plan.nodes, "parallelism": plan.nodes}
        seal_job(job, pod_template(job["template"], spec, plan))
        return made


def check_job(spec: Manifest, path: str) -> list[str]:
    """What in a Job's spec, of its own or inside a JobSet, would restart or remove pods behind our back."""
    problems = check_pod(spec["template"], f"{path}.template")
    if spec.get("backoffLimit"):
        problems.append(
            f"{path}.backoffLimit must be 0 or left out: the workflow restarts whole attempts, within its budgets"
        )
    for field in ("backoffLimitPerIndex", "maxFailedIndexes", "podFailurePolicy"):
        if spec.get(field) is not None:
            problems.append(f"{path}.{field} must be left out: a rank that failed ends the attempt, and we say why")
    if spec.get("ttlSecondsAfterFinished") is not None:
        problems.append(f"{path}.ttlSecondsAfterFinished must be left out: it removes pods before their evidence")
    if spec.get("selector") is not None:
        problems.append(f"{path}.selector must be left out: it is of an object that runs, and no template")
    return problems


def seal_job(spec: dict[str, Any], template: dict[str, Any]) -> None:
    """Take every restart of Kubernetes' own from a Job's spec: a pod has no successor in its attempt."""
    template["spec"]["restartPolicy"] = "Never"
    # Failed: even a deleted pod would get no successor before it has ended.
    spec |= {"backoffLimit": 0, "podReplacementPolicy": "Failed", "template": template}


ADAPTER: Final[Adapter] = IndexedJob()
