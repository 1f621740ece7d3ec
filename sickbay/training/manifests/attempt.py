"""What the objects of all kinds have in common: name, labels, fence, our variables, and the nodes to keep off.

Called by the adapters with copies. Exclusions are required node affinity, scoped to the attempt; a taint would be for
the whole cluster (facts: training, 7). `matchFields` on the node's name is not used, since Karpenter does not know it.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Final

from sickbay import names
from sickbay.eviction import KARPENTER_HOLD
from sickbay.training.attempts import AttemptPlan, Exclusion
from sickbay.training.job import TrainingSpec

HOSTNAME: Final = "kubernetes.io/hostname"
VOLUME: Final = "sickbay-ranks"
NO_RANK_FOLDER: Final = f"{names.DOMAIN}/no-rank-folder"
"""Annotation `true` on the manifest: its namespace forbids folders of the host in pods, so that ranks tell nothing."""
SOFT_WEIGHT: Final = 100
GPU: Final = "nvidia.com/gpu"
ANNOTATION_NODES: Final = f"{names.DOMAIN}/attempt-nodes"
"""On an attempt's object: how many pods it has."""
ANNOTATION_RANK_OFFSET: Final = f"{names.DOMAIN}/rank-offset"
"""On a pod: what its index is behind, e.g. a worker's behind a master."""
ANNOTATION_RANK_STRIDE: Final = f"{names.DOMAIN}/rank-stride"
"""On a pod of a JobSet: how many pods each of its jobs has, which is what the next job's first index is behind."""


def object_of(spec: TrainingSpec, plan: AttemptPlan) -> dict[str, Any]:
    """A copy of the manifest under the attempt's name, with its labels and its fence."""
    made: dict[str, Any] = copy.deepcopy(dict(spec.manifest))
    made.pop("status", None)
    given = made.get("metadata") or {}
    made["metadata"] = {
        "name": plan.ref.name,
        "namespace": plan.ref.namespace,
        "labels": {**(given.get("labels") or {}), **labels_of(plan)},
        "annotations": {
            **(given.get("annotations") or {}),
            names.ANNOTATION_FENCE: plan.ref.fence,
            ANNOTATION_NODES: str(plan.nodes),
        },
    }
    return made


def labels_of(plan: AttemptPlan) -> dict[str, str]:
    """On the object and on every pod."""
    return {names.LABEL_JOB: plan.ref.job, names.LABEL_ATTEMPT: str(plan.ref.attempt)}


def environment_of(spec: TrainingSpec, plan: AttemptPlan) -> dict[str, str]:
    """The variables that tell a script what its attempt is."""
    resume = plan.resume
    variables = {
        names.ENV_JOB: plan.ref.full_job,
        names.ENV_ATTEMPT: str(plan.ref.attempt),
        names.ENV_NODES: str(plan.nodes),
        names.ENV_CHECKPOINT_URL: plan.checkpoint_url,
        names.ENV_RESUME_FROM: resume.path if resume else "",
        names.ENV_RESUME_STEP: str(resume.step) if resume else "",
    }
    if plan.accumulation is not None:
        variables[names.ENV_ACCUMULATION] = str(plan.accumulation)
    if mounts_ranks(spec):
        variables[names.ENV_RANK_DIR] = names.RANK_DIR
    return variables


def pod_template(
    template: Mapping[str, Any], spec: TrainingSpec, plan: AttemptPlan, *, rank_offset: int = 0, rank_stride: int = 0
) -> dict[str, Any]:
    """A pod template of the attempt, made of the user's. The pods' ranks are their indices behind `rank_offset`, and
    behind `rank_stride` for each job of a JobSet before theirs."""
    made = copy.deepcopy(dict(template))
    given = made.get("metadata") or {}
    made["metadata"] = {
        **given,
        "labels": {**(given.get("labels") or {}), **labels_of(plan)},
        # Nobody else moves a rank in the middle of a step; our own drain asks the job first.
        "annotations": {
            KARPENTER_HOLD: "true",
            **(given.get("annotations") or {}),
            names.ANNOTATION_FENCE: plan.ref.fence,
            **({ANNOTATION_RANK_OFFSET: str(rank_offset)} if rank_offset else {}),
            **({ANNOTATION_RANK_STRIDE: str(rank_stride)} if rank_stride else {}),
        },
    }
    pod = made.setdefault("spec", {})
    variables = environment_of(spec, plan)
    for container in (*(pod.get("containers") or ()), *(pod.get("initContainers") or ())):
        container["env"] = _with_variables(container.get("env") or (), variables)
        if mounts_ranks(spec):
            mounts = [mount for mount in container.get("volumeMounts") or () if mount.get("name") != VOLUME]
            container["volumeMounts"] = [*mounts, {"name": VOLUME, "mountPath": names.RANK_DIR}]
    if mounts_ranks(spec):
        volumes = [volume for volume in pod.get("volumes") or () if volume.get("name") != VOLUME]
        pod["volumes"] = [*volumes, {"name": VOLUME, "hostPath": {"path": names.RANK_DIR, "type": "DirectoryOrCreate"}}]
    if affinity := keep_off(pod.get("affinity") or {}, plan.exclusions):
        pod["affinity"] = affinity
    return made


def keep_off(affinity: Mapping[str, Any], exclusions: Iterable[Exclusion]) -> dict[str, Any]:
    """An affinity that keeps off excluded nodes: hard ones in every required term, soft ones as a preference."""
    exclusions = tuple(exclusions)
    hard = sorted({each.node for each in exclusions if not each.soft})
    soft = sorted({each.node for each in exclusions if each.soft})
    made = copy.deepcopy(dict(affinity))
    if not hard and not soft:
        return made
    node = dict(made.get("nodeAffinity") or {})
    if hard:
        required = dict(node.get("requiredDuringSchedulingIgnoredDuringExecution") or {})
        terms = required.get("nodeSelectorTerms") or [{}]
        # Terms are alternatives: one without the exclusion would let the pod in by its side.
        required["nodeSelectorTerms"] = [
            {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), _not_in(hard)]} for term in terms
        ]
        node["requiredDuringSchedulingIgnoredDuringExecution"] = required
    if soft:
        preferred = list(node.get("preferredDuringSchedulingIgnoredDuringExecution") or ())
        preferred.append({"weight": SOFT_WEIGHT, "preference": {"matchExpressions": [_not_in(soft)]}})
        node["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    made["nodeAffinity"] = node
    return made


def mounts_ranks(spec: TrainingSpec) -> bool:
    """Whether pods get the host's folder of rank reports."""
    metadata = spec.manifest.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return not (isinstance(annotations, Mapping) and annotations.get(NO_RANK_FOLDER) == "true")


def check_pod(template: Mapping[str, Any], path: str) -> list[str]:
    """What is wrong with a pod template for an attempt, although its shape is right."""
    pod = template["spec"]
    problems = []
    if pod.get("restartPolicy") not in ("Never", None):
        problems.append(
            f"{path}.spec.restartPolicy is {pod['restartPolicy']}: set Never, or the kubelet restarts a rank behind "
            "the job's back"
        )
    if pod.get("nodeName"):
        problems.append(f"{path}.spec.nodeName pins the pod: use a nodeSelector, or the job can leave no sick node")
    for number, container in enumerate(pod["containers"]):
        problems += check_gpus(container.get("resources"), f"{path}.spec.containers[{number}].resources")
    return problems


def check_gpus(resources: Mapping[str, Any] | None, path: str) -> list[str]:
    """Counts of GPUs that are no counts."""
    asked = [(part, ((resources or {}).get(part) or {}).get(GPU, 0)) for part in ("requests", "limits")]
    return [
        f"{path}.{part}: {GPU} is {count}: GPUs are asked for as a whole number"
        for part, count in asked
        if not str(count).isascii() or not str(count).isdecimal()
    ]


def _with_variables(given: Iterable[Mapping[str, Any]], variables: Mapping[str, str]) -> list[dict[str, Any]]:
    kept = [dict(entry) for entry in given if entry.get("name") not in variables]
    # Ours come first, so that the user's own may refer to them as $(NAME).
    return [{"name": name, "value": value} for name, value in variables.items()] + kept


def _not_in(nodes: list[str]) -> dict[str, Any]:
    return {"key": HOSTNAME, "operator": "NotIn", "values": nodes}
