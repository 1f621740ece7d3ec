"""PyTorchJobs (kubeflow.org/v1): a master and its workers, or workers alone.

The master, where there is one, is one of the nodes. `elasticPolicy` and the operator's own restarts are refused: an
`ExitCode` policy retries a segmentation fault for ever (facts: training, 2.1), and two elastic minds contradict.
"""

from typing import Any, Final

from pydantic import Field

from sickbay.kube_objects import KubeObject
from sickbay.training.attempts import AttemptPlan
from sickbay.training.job import TrainingSpec
from sickbay.training.manifests.adapter import Adapter, ApiKind, Manifest
from sickbay.training.manifests.attempt import check_pod, object_of, pod_template
from sickbay.training.manifests.shapes import Count, PodTemplate

REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
KINDS: Final = ("Master", "Worker")


class _Replica(KubeObject):
    replicas: Count = 1
    restart_policy: str = ""
    template: PodTemplate


class _RunPolicy(KubeObject):
    clean_pod_policy: str = ""


class _Spec(KubeObject):
    pytorch_replica_specs: dict[str, _Replica] = Field(min_length=1)
    run_policy: _RunPolicy = _RunPolicy()


class _PyTorchJob(KubeObject):
    spec: _Spec


class PyTorchJob:
    """The adapter."""

    api = ApiKind(group="kubeflow.org", version="v1", kind="PyTorchJob", plural="pytorchjobs")
    shape: type[KubeObject] = _PyTorchJob
    rank_labels: tuple[str, ...] = (REPLICA_INDEX,)

    def check(self, manifest: Manifest) -> tuple[str, ...]:
        """Replicas with a size, no elastic policy, no restarts of the operator's own."""
        spec = manifest["spec"]
        replicas = spec["pytorchReplicaSpecs"]
        problems: list[str] = []
        for name, replica in replicas.items():
            path = f"spec.pytorchReplicaSpecs.{name}"
            problems += check_pod(replica["template"], f"{path}.template")
            if name not in KINDS:
                problems.append(f"{path} is not known; use {' and '.join(KINDS)}")
            if (replica.get("restartPolicy") or "Never") != "Never":
                problems.append(f"{path}.restartPolicy must be Never: the workflow restarts whole attempts")
            if not _count(replica):
                problems.append(f"{path}.replicas must be a number above 0")
        policy = spec.get("runPolicy") or {}
        if policy.get("ttlSecondsAfterFinished") is not None:
            problems.append("spec.runPolicy.ttlSecondsAfterFinished must be left out: it removes the evidence")
        if (policy.get("cleanPodPolicy") or "None") != "None":
            problems.append("spec.runPolicy.cleanPodPolicy must be None: pods are evidence until we have read them")
        if spec.get("elasticPolicy") is not None:
            problems.append("spec.elasticPolicy must be left out: say `elasticity` in the job's file instead")
        return tuple(problems)

    def nodes_of(self, manifest: Manifest) -> int:
        """Of all replicas."""
        return sum(_count(replica) for replica in manifest["spec"]["pytorchReplicaSpecs"].values())

    def pod_spec_of(self, manifest: Manifest) -> Manifest:
        """Of the workers, else of the master."""
        replicas = manifest["spec"]["pytorchReplicaSpecs"]
        replica = replicas.get("Worker") or next(iter(replicas.values()))
        pod: Manifest = replica["template"]["spec"]
        return pod

    def render(self, spec: TrainingSpec, plan: AttemptPlan) -> dict[str, Any]:
        """Workers to size, the master aside."""
        made = object_of(spec, plan)
        replicas = made["spec"]["pytorchReplicaSpecs"]
        masters = _count(replicas["Master"]) if "Master" in replicas else 0
        for name, replica in replicas.items():
            replica["restartPolicy"] = "Never"
            offset = 0 if name == "Master" else masters
            replica["template"] = pod_template(replica["template"], spec, plan, rank_offset=offset)
        if "Worker" in replicas:
            if plan.nodes > masters:
                replicas["Worker"]["replicas"] = plan.nodes - masters
            else:
                del replicas["Worker"]
        made["spec"]["runPolicy"] = {
            **(made["spec"].get("runPolicy") or {}),
            "cleanPodPolicy": "None",
            "backoffLimit": 0,
        }
        return made


def _count(replica: Manifest) -> int:
    replicas = replica.get("replicas")
    return 1 if replicas is None else int(replicas)


ADAPTER: Final[Adapter] = PyTorchJob()
