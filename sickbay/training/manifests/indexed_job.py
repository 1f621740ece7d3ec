"""Indexed Jobs (batch/v1): one pod per index, all at once, restarted by nobody but us."""

from typing import Any, Final

from sickbay.training.attempts import AttemptPlan
from sickbay.training.job import TrainingSpec
from sickbay.training.manifests.adapter import Adapter, ApiKind, Manifest
from sickbay.training.manifests.attempt import check_pod, object_of, pod_template, positive

INDEX: Final = "batch.kubernetes.io/job-completion-index"


class IndexedJob:
    """The adapter."""

    api = ApiKind(group="batch", version="v1", kind="Job", plural="jobs")
    rank_labels: tuple[str, ...] = (INDEX,)

    def check(self, manifest: Manifest) -> tuple[str, ...]:
        """Sizes that agree, and no restarts of Kubernetes' own."""
        spec = manifest.get("spec")
        if not isinstance(spec, dict):
            return ("spec is missing",)
        problems = check_pod(spec.get("template"), "spec.template")
        if not positive(spec.get("parallelism")) or spec.get("completions") != spec.get("parallelism"):
            problems.append("spec.completions and spec.parallelism must be the number of nodes, and equal")
        if spec.get("completionMode", "Indexed") != "Indexed":
            problems.append("spec.completionMode must be Indexed: a rank needs its index")
        if spec.get("backoffLimit", 0) != 0:
            problems.append(
                "spec.backoffLimit must be 0 or left out: the workflow restarts whole attempts, within its budgets"
            )
        if "ttlSecondsAfterFinished" in spec:
            problems.append("spec.ttlSecondsAfterFinished must be left out: it removes pods before their evidence")
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
        job |= {
            "completionMode": "Indexed",
            "completions": plan.nodes,
            "parallelism": plan.nodes,
            "backoffLimit": 0,
            "template": pod_template(job["template"], spec, plan),
        }
        job["template"]["spec"]["restartPolicy"] = "Never"
        return made


ADAPTER: Final[Adapter] = IndexedJob()
