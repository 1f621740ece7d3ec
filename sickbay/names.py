"""Every name that two rooms must agree on: ids, queues, conditions, marks.

Keep to `DOMAIN` for whatever we write on objects of others: `karpenter.sh` and `node.kubernetes.io` are restricted
or are cleaned by their owners (facts: remediation, 1.6).
"""

from typing import Final

DOMAIN: Final = "sickbay.dev"
FIELD_MANAGER: Final = "sickbay"
"""Field manager of every write of ours, by which a foreign cordon or uncordon is told from our own."""

CONTROLLER_QUEUE: Final = "sickbay-controller"
"""Task queue of workflows and of activities that need the cluster or the cloud."""

WORKFLOW_INCIDENT: Final = "NodeIncident"
WORKFLOW_ADMISSION: Final = "NodeAdmission"
WORKFLOW_JOB: Final = "TrainingJob"
WORKFLOW_SUSPICIONS: Final = "NodeSuspicions"
SIGNAL_REPORT_FAULTS: Final = "report_faults"
SIGNAL_CLEAR_FAULTS: Final = "clear_faults"
UPDATE_COMMAND: Final = "command"
QUERY_VIEW: Final = "view"
"""The incident workflow and its handlers, as its callers outside of Temporal's workers know them."""

ANNOTATION_INCIDENT: Final = f"{DOMAIN}/incident"
"""Incident id of the open incident that marked this node."""
ANNOTATION_PRIOR_UNSCHEDULABLE: Final = f"{DOMAIN}/prior-unschedulable"
"""`true` or `false`: whether the node was cordoned before we cordoned it."""
ANNOTATION_CONTAINED_AT: Final = f"{DOMAIN}/contained-at"
ANNOTATION_DO_NOT_DISRUPT: Final = f"{DOMAIN}/do-not-disrupt-owner"
"""Incident id, where `karpenter.sh/do-not-disrupt` on this node is ours to remove."""
ANNOTATION_PAUSED_CLIENTS: Final = f"{DOMAIN}/paused-gpu-clients"
"""Which GPU operands an incident has paused for a GPU reset, and what their labels said before; JSON, see
`sickbay.gpu_clients`."""
ANNOTATION_FAULTS: Final = f"{DOMAIN}/faults"
"""The node agent's open faults, compact JSON; see `sickbay.conditions`."""
ANNOTATION_CLOUD: Final = f"{DOMAIN}/cloud-words"
"""What EC2 last said of the node's instance, compact JSON; written by the controller, see `sickbay.cloud_words`."""
ANNOTATION_ADMITTED: Final = f"{DOMAIN}/admitted-boot"
"""Boot id in which this node last passed its admission; a record for the next one, no mark of an incident."""
ANNOTATION_HELD_BOOT: Final = f"{DOMAIN}/held-boot"
"""Boot id for which we put the taint below back, once: whoever takes it away again in that boot gives an order."""
TAINT_ADMISSION: Final = f"{DOMAIN}/admission"
"""Startup taint of pools whose nodes get no work until they are validated; removed by us alone."""
TAINT_INCIDENT: Final = f"{DOMAIN}/incident"

LABEL_JOB: Final = f"{DOMAIN}/training-job"
"""On every object and pod of an attempt: the job's name."""
LABEL_ATTEMPT: Final = f"{DOMAIN}/attempt"
"""On the same: the attempt's number."""
ANNOTATION_FENCE: Final = f"{DOMAIN}/job-fence"
"""On an attempt's object: the first run id of the workflow that made it, which tells ours from a foreign one."""
ANNOTATION_RANKS: Final = f"{DOMAIN}/ranks"
"""On a node: the URL where its agent serves what the node's ranks tell (`sickbay.ranks.model.NodeRanks`)."""

ENV_JOB: Final = "SICKBAY_JOB"
"""`namespace/name`; these variables are set in every container of an attempt."""
ENV_ATTEMPT: Final = "SICKBAY_ATTEMPT"
ENV_NODES: Final = "SICKBAY_NODES"
"""How many pods the attempt has."""
ENV_ACCUMULATION: Final = "SICKBAY_ACCUMULATION"
"""Micro-batches per step and rank that keep the global batch; absent where the job does not say how to keep it."""
ENV_CHECKPOINT_URL: Final = "SICKBAY_CHECKPOINT_URL"
"""Where this attempt writes its checkpoints."""
ENV_RESUME_FROM: Final = "SICKBAY_RESUME_FROM"
"""Path or URL of the checkpoint to resume from; empty for the beginning."""
ENV_RESUME_STEP: Final = "SICKBAY_RESUME_STEP"
ENV_RANK_DIR: Final = "SICKBAY_RANK_DIR"
"""Folder of the rank reports, a host's folder mounted into the pod (`health/rank_reporter.py`)."""
RANK_DIR: Final = "/run/sickbay/ranks"
"""That folder, on the host and in the pod. Below it `<namespace>_<job>/<attempt>/rank-<n>.jsonl`, and beside those
files `checkpoint-now` while a checkpoint is asked for."""

CONDITION_GPU: Final = "SickbayGpuHealthy"
CONDITION_FABRIC: Final = "SickbayFabricHealthy"
CONDITION_NETWORK: Final = "SickbayNetworkHealthy"
CONDITION_HOST: Final = "SickbayHostHealthy"
CONDITIONS: Final = (CONDITION_GPU, CONDITION_FABRIC, CONDITION_NETWORK, CONDITION_HOST)
"""Our node conditions; status True is good."""

MARKS: Final = (
    ANNOTATION_INCIDENT,
    ANNOTATION_PRIOR_UNSCHEDULABLE,
    ANNOTATION_CONTAINED_AT,
    ANNOTATION_DO_NOT_DISRUPT,
    ANNOTATION_PAUSED_CLIENTS,
)
"""Annotations that live only while an incident is open."""


def node_queue(node_name: str) -> str:
    """Task queue of the host activities of one node."""
    return f"node-{node_name}"


def machine_id(provider_id: str | None, node_uid: str) -> str:
    """What names a machine for ever: the cloud's instance id, else the UID of its node object.

    `aws:///eu-west-1a/i-0abc` gives `i-0abc`. Never the node's name, which a successor can inherit.
    """
    return provider_id.rsplit("/", 1)[-1] if provider_id else node_uid


def incident_id(cluster: str, machine: str) -> str:
    """Workflow id of the incident of one machine; at most one is open at a time."""
    return f"incident-{cluster}-{machine}"


def budget_id(cluster: str) -> str:
    """Workflow id of the disruption budget of one cluster."""
    return f"disruption-budget-{cluster}"


def admission_id(cluster: str, machine: str) -> str:
    """Workflow id of the admission of one machine; at most one is open at a time."""
    return f"admission-{cluster}-{machine}"


def job_id(cluster: str, namespace: str, job: str) -> str:
    """Workflow id of one training job; at most one of a name is open at a time."""
    return f"job-{cluster}-{namespace}-{job}"


def suspicions_id(cluster: str) -> str:
    """Workflow id of what one cluster's jobs suspect of its nodes."""
    return f"suspicions-{cluster}"
