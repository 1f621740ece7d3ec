"""TrainJobs (trainer.kubeflow.org/v1alpha1): a runtime of the cluster with our size, variables and node affinity.

A TrainJob has no pod template of its own; what we add goes into `spec.runtimePatches`, as the API of version 2.3 has it
(facts: training, 7). The runtime's own JobSet must not restart anything.
"""

from typing import Any, Final

from sickbay.eviction import KARPENTER_HOLD
from sickbay.names import DOMAIN, RANK_DIR
from sickbay.training.attempts import AttemptPlan
from sickbay.training.job import TrainingSpec
from sickbay.training.manifests.adapter import Adapter, ApiKind, Manifest
from sickbay.training.manifests.attempt import (
    VOLUME,
    environment_of,
    keep_off,
    labels_of,
    mounts_ranks,
    object_of,
    positive,
)
from sickbay.training.manifests.indexed_job import INDEX

MANAGER: Final = f"{DOMAIN}/sickbay"
"""Who made a patch; each manager has one of its own."""
NODE_JOB: Final = "node"
"""The runtime's replicated job that trains."""


class TrainJob:
    """The adapter."""

    api = ApiKind(group="trainer.kubeflow.org", version="v1alpha1", kind="TrainJob", plural="trainjobs")
    rank_labels: tuple[str, ...] = (INDEX,)

    def check(self, manifest: Manifest) -> tuple[str, ...]:
        """A runtime, and a size."""
        spec = manifest.get("spec")
        if not isinstance(spec, dict):
            return ("spec is missing",)
        problems = []
        if not (spec.get("runtimeRef") or {}).get("name"):
            problems.append("spec.runtimeRef.name is missing")
        if not positive((spec.get("trainer") or {}).get("numNodes")):
            problems.append("spec.trainer.numNodes must say how many nodes the job has")
        return tuple(problems)

    def nodes_of(self, manifest: Manifest) -> int:
        """`numNodes`."""
        return int(manifest["spec"]["trainer"]["numNodes"])

    def pod_spec_of(self, manifest: Manifest) -> Manifest:
        """What its patches say of where its pods run; what the runtime says is not known here."""
        found: dict[str, Any] = {}
        for patch in manifest["spec"].get("runtimePatches") or ():
            found |= _pod_patch(patch)
        return found

    def render(self, spec: TrainingSpec, plan: AttemptPlan) -> dict[str, Any]:
        """Size and variables in the trainer, the rest in a patch of ours."""
        made = object_of(spec, plan)
        trainer = made["spec"]["trainer"]
        variables = environment_of(spec, plan)
        kept = [entry for entry in trainer.get("env") or () if entry.get("name") not in variables]
        trainer["numNodes"] = plan.nodes
        trainer["env"] = [{"name": name, "value": value} for name, value in variables.items()] + kept
        patches = [patch for patch in made["spec"].get("runtimePatches") or () if patch.get("manager") != MANAGER]
        made["spec"]["runtimePatches"] = [*patches, _our_patch(spec, plan)]
        return made


def gpus_of(manifest: Manifest) -> int:
    """GPUs of each node of a TrainJob; 0 for other kinds."""
    spec = manifest.get("spec")
    trainer = spec.get("trainer") if isinstance(spec, dict) else None
    resources = trainer.get("resourcesPerNode") if isinstance(trainer, dict) else None
    if not isinstance(resources, dict):
        return 0
    wanted = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return int(wanted.get("nvidia.com/gpu", 0))


def _our_patch(spec: TrainingSpec, plan: AttemptPlan) -> dict[str, Any]:
    pod: dict[str, Any] = {}
    if affinity := keep_off({}, plan.exclusions):
        pod["affinity"] = affinity
    if mounts_ranks(spec):
        pod["volumes"] = [{"name": VOLUME, "hostPath": {"path": RANK_DIR, "type": "DirectoryOrCreate"}}]
        mount = {"name": VOLUME, "mountPath": RANK_DIR}
        pod["containers"] = [{"name": NODE_JOB, "volumeMounts": [mount]}]
    metadata = {"labels": labels_of(plan), "annotations": {KARPENTER_HOLD: "true"}}
    template = {"spec": {"template": {"metadata": metadata, "spec": pod}}}
    job = {"name": NODE_JOB, "template": template}
    return {
        "manager": MANAGER,
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}},
    }


def _pod_patch(patch: Manifest) -> dict[str, Any]:
    template = (patch.get("trainingRuntimeSpec") or {}).get("template") or {}
    found: dict[str, Any] = {}
    for job in (template.get("spec") or {}).get("replicatedJobs") or ():
        inner = ((job.get("template") or {}).get("spec") or {}).get("template") or {}
        found |= inner.get("spec") or {}
    return found


ADAPTER: Final[Adapter] = TrainJob()
