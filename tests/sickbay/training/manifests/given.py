"""Manifests of the four kinds as people write them, and plans of attempts, for the tests of adapters and activities."""

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

from sickbay.checkpoints.model import Checkpoint, CheckpointFormat, CheckpointPlace, Level
from sickbay.training.attempts import AttemptPlan, AttemptRef, Exclusion
from sickbay.training.job import JobKind, Target, TrainingSpec

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
REF = AttemptRef(cluster="c1", namespace="ml", job="llama", attempt=3, fence="run-1")


def pod_template(gpus: int = 8) -> dict[str, Any]:
    """A trainer that asks for GPUs."""
    container = {"name": "main", "image": "trainer:1", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    return {"spec": {"containers": [container]}}


def indexed_job(nodes: int = 2) -> dict[str, Any]:
    """An Indexed Job."""
    spec = {"completionMode": "Indexed", "completions": nodes, "parallelism": nodes, "template": pod_template()}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "llama"}, "spec": spec}


def job_set(nodes: int = 2, replicas: int = 1) -> dict[str, Any]:
    """A JobSet of workers and a coordinator."""

    def job(name: str, replicas: int, parallelism: int) -> dict[str, Any]:
        inner = {"parallelism": parallelism, "completions": parallelism, "template": pod_template()}
        return {"name": name, "replicas": replicas, "template": {"spec": inner}}

    jobs = [job("coordinator", 1, 1), job("worker", replicas, nodes // replicas)]
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {"replicatedJobs": jobs}}


def pytorch_job(workers: int = 1) -> dict[str, Any]:
    """A PyTorchJob with a master."""
    replicas = {
        "Master": {"replicas": 1, "template": pod_template()},
        "Worker": {"replicas": workers, "template": pod_template()},
    }
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": replicas}}


def train_job(nodes: int = 2) -> dict[str, Any]:
    """A TrainJob."""
    trainer = {"numNodes": nodes, "resourcesPerNode": {"limits": {"nvidia.com/gpu": "8"}}}
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": spec}


MANIFESTS: dict[JobKind, dict[str, Any]] = {
    JobKind.INDEXED_JOB: indexed_job(),
    JobKind.JOB_SET: job_set(),
    JobKind.PYTORCH_JOB: pytorch_job(),
    JobKind.TRAIN_JOB: train_job(),
}
"""One of each kind, of two nodes with eight GPUs."""


def spec_of(manifest: dict[str, Any], **values: Any) -> TrainingSpec:
    """A job that runs this object."""
    needed: dict[str, Any] = {"checkpoints": CheckpointPlace(url="s3://bucket/llama"), "target": Target(step=1000)}
    return TrainingSpec(name="llama", namespace="ml", manifest=copy.deepcopy(manifest), **{**needed, **values})


def plan_of(nodes: int = 2, **values: Any) -> AttemptPlan:
    """The third attempt, on so many nodes."""
    return AttemptPlan(ref=REF, nodes=nodes, checkpoint_url="s3://bucket/llama", **values)


def keeps_off(node: str, *, soft: bool = False) -> Exclusion:
    """An exclusion that holds now."""
    return Exclusion(node=node, reason="it fell off the bus", since=NOW, until=NOW + timedelta(days=1), soft=soft)


def checkpoint(step: int) -> Checkpoint:
    """A whole one."""
    return Checkpoint(
        step=step,
        path=f"s3://bucket/llama/step-{step}",
        format=CheckpointFormat.DCP,
        level=Level.COMMITTED,
    )


def put(manifest: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with one value set, e.g. at `spec.replicatedJobs.0.name`."""
    made: dict[str, Any] = copy.deepcopy(manifest)
    here: Any = made
    *steps, last = path.split(".")
    for step in steps:
        here = here[int(step)] if isinstance(here, list) else here.setdefault(step, {})
    here[int(last) if isinstance(here, list) else last] = value
    return made
