"""TrainJobs (trainer.kubeflow.org/v1alpha1): a runtime of the cluster with our size, variables and node affinity.

A TrainJob has no pod template of its own; what we add goes into `spec.runtimePatches`, as the API of version 2.3 has it
(facts: training, 7). The runtime's own JobSet must not restart anything.
"""

from typing import Any, Final

from sickbay.eviction import KARPENTER_HOLD
from sickbay.kube_objects import KubeObject
from sickbay.names import ANNOTATION_FENCE, DOMAIN, RANK_DIR
from sickbay.training.attempts import AttemptPlan
from sickbay.training.job import TrainingSpec
from sickbay.training.manifests.adapter import Adapter, ApiKind, Manifest
from sickbay.training.manifests.attempt import (
    GPU,
    VOLUME,
    check_gpus,
    environment_of,
    keep_off,
    labels_of,
    mounts_ranks,
    object_of,
)
from sickbay.training.manifests.indexed_job import INDEX
from sickbay.training.manifests.shapes import Count, Named, Pod, Resources

MANAGER: Final = f"{DOMAIN}/sickbay"
"""Who made a patch; each manager has one of its own."""
NODE_JOB: Final = "node"
"""The runtime's replicated job that trains."""


class _Trainer(KubeObject):
    num_nodes: Count = 0
    env: tuple[Named, ...] = ()
    resources_per_node: Resources = Resources()


class _PodTemplate(KubeObject):
    spec: Pod = Pod()


class _JobSpec(KubeObject):
    template: _PodTemplate = _PodTemplate()


class _JobTemplate(KubeObject):
    spec: _JobSpec = _JobSpec()


class _ReplicatedJob(KubeObject):
    template: _JobTemplate = _JobTemplate()


class _SetSpec(KubeObject):
    replicated_jobs: tuple[_ReplicatedJob, ...] = ()


class _SetTemplate(KubeObject):
    spec: _SetSpec = _SetSpec()


class _RuntimeSpec(KubeObject):
    template: _SetTemplate = _SetTemplate()


class _Patch(KubeObject):
    manager: str
    training_runtime_spec: _RuntimeSpec = _RuntimeSpec()


class _Spec(KubeObject):
    runtime_ref: Named
    trainer: _Trainer
    runtime_patches: tuple[_Patch, ...] = ()


class _TrainJob(KubeObject):
    spec: _Spec


class TrainJob:
    """The adapter."""

    api = ApiKind(group="trainer.kubeflow.org", version="v1alpha1", kind="TrainJob", plural="trainjobs")
    shape: type[KubeObject] = _TrainJob
    rank_labels: tuple[str, ...] = (INDEX,)

    def check(self, manifest: Manifest) -> tuple[str, ...]:
        """A size, and GPUs in whole numbers; what the runtime itself restarts is not seen here."""
        trainer = manifest["spec"]["trainer"]
        problems = check_gpus(trainer.get("resourcesPerNode"), "spec.trainer.resourcesPerNode")
        if not trainer.get("numNodes"):
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
    return int(wanted.get(GPU, 0))


def _our_patch(spec: TrainingSpec, plan: AttemptPlan) -> dict[str, Any]:
    pod: dict[str, Any] = {}
    # A patch of a list replaces it: ours repeats what the person's own patches demand.
    if affinity := keep_off(TrainJob().pod_spec_of(spec.manifest).get("affinity") or {}, plan.exclusions):
        pod["affinity"] = affinity
    if mounts_ranks(spec):
        pod["volumes"] = [{"name": VOLUME, "hostPath": {"path": RANK_DIR, "type": "DirectoryOrCreate"}}]
        mount = {"name": VOLUME, "mountPath": RANK_DIR}
        pod["containers"] = [{"name": NODE_JOB, "volumeMounts": [mount]}]
    metadata = {"labels": labels_of(plan), "annotations": {KARPENTER_HOLD: "true", ANNOTATION_FENCE: plan.ref.fence}}
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
