"""What NVIDIA's GPU operator runs on a node: which pods follow which label, and what hangs on them.

Used by `gpu_operator`, which keeps the pods, and by the kubelets, which start them and count allocatable GPUs.
"""

from collections.abc import Iterable
from typing import Final

from simulator.cluster.api import Json
from simulator.cluster.objects import Node, Pod

NAMESPACE: Final = "gpu-operator"
DEPLOY_LABEL: Final = "nvidia.com/gpu.deploy."
"""Before the operand's name: the node label that its pods select, with the value `true`."""
DEVICE_PLUGIN: Final = "device-plugin"
OPERANDS: Final = (DEVICE_PLUGIN, "dcgm-exporter")
OPENS_GPUS: Final = "simulator.sickbay.dev/opens-gpus"
"""Pod annotation: its processes open every GPU of the machine without being given any."""


def pods_of(operand: str, pods: Iterable[Pod]) -> list[Pod]:
    """Those of a node's pods that belong to an operand."""
    return [pod for pod in pods if DEPLOY_LABEL + operand in pod.spec.node_selector]


def gpus_are_served(node: Node, pods: Iterable[Pod]) -> bool:
    """Whether pods may ask for GPUs; without the operator, the kubelet's own word is taken for the device plugin's."""
    if DEPLOY_LABEL + DEVICE_PLUGIN not in node.metadata.labels:
        return True
    return any(pod.ready and not pod.deleting for pod in pods_of(DEVICE_PLUGIN, pods))


def operand_pod(node: Node, operand: str) -> Json:
    """The pod of an operand on a node, as its DaemonSet would make it."""
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": f"nvidia-{operand}", "uid": f"daemonset-{operand}"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            # By the node's UID: a successor may bear its predecessor's name while the old pod is still going.
            "name": f"nvidia-{operand}-{node.metadata.uid[:8]}",
            "namespace": NAMESPACE,
            "labels": {"app": f"nvidia-{operand}"},
            "annotations": {OPENS_GPUS: "true"},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {
            "nodeName": node.name,
            "nodeSelector": {DEPLOY_LABEL + operand: "true"},
            "tolerations": [{"operator": "Exists"}],
            "priorityClassName": "system-node-critical",
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "containers": [{"name": operand, "image": f"simulated/{operand}"}],
        },
    }
