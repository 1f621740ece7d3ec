"""The objects that a simulated cluster starts with: Karpenter's pools, training jobs and their budgets."""

from sickbay.model import Frozen
from simulator.cluster.api import Json
from simulator.cluster.karpenter_objects import GROUP, LABEL_INSTANCE_TYPE
from simulator.cluster.kubelet_nodes import LABEL_SIMULATED_POOL
from simulator.cluster.objects import GPU_RESOURCE, Taint

LABEL_JOB = "simulator.sickbay.dev/job"


class JobOrder(Frozen):
    """A training job: one worker per index, each with its GPUs."""

    name: str
    pool: str
    workers: int
    gpus_per_worker: int
    namespace: str = "default"
    min_available: int | None = None
    """With a number, a PodDisruptionBudget keeps that many workers."""
    stop_seconds: float | None = None
    """Simulated seconds that a worker needs to end once asked."""
    run_seconds: float | None = None
    """Simulated seconds after which a worker succeeds; None for a job that runs on."""
    grace_seconds: int = 30


def node_pool(
    name: str, instance_type: str, replicas: int | None, limit: int, startup_taints: tuple[Taint, ...] = ()
) -> Json:
    """A Karpenter pool; static with `replicas`, else sized by waiting pods."""
    startup = {"startupTaints": [taint.written() for taint in startup_taints]} if startup_taints else {}
    count = {} if replicas is None else {"replicas": replicas}
    requirements = [{"key": LABEL_INSTANCE_TYPE, "operator": "In", "values": [instance_type]}]
    node_class = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "simulated"}
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            **count,
            "limits": {"nodes": limit},
            "template": {
                "metadata": {"labels": {LABEL_SIMULATED_POOL: name}},
                "spec": {"requirements": requirements, "nodeClassRef": node_class, **startup},
            },
        },
    }


def job(order: JobOrder, annotations: dict[str, str]) -> Json:
    """An Indexed Job whose evicted workers do not count as failures."""
    labels = {LABEL_JOB: order.name}
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    worker = {
        "name": "worker",
        "image": "simulated/trainer",
        "resources": {"limits": {GPU_RESOURCE: str(order.gpus_per_worker)}},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": order.name, "namespace": order.namespace, "labels": labels},
        "spec": {
            "completionMode": "Indexed",
            "completions": order.workers,
            "parallelism": order.workers,
            "backoffLimit": 6,
            "podFailurePolicy": {"rules": [rule]},
            "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": order.grace_seconds,
                    "nodeSelector": {LABEL_SIMULATED_POOL: order.pool},
                    "containers": [worker],
                },
            },
        },
    }


def budget(order: JobOrder) -> Json:
    """The job's PodDisruptionBudget."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": order.name, "namespace": order.namespace},
        "spec": {"minAvailable": order.min_available, "selector": {"matchLabels": {LABEL_JOB: order.name}}},
    }
