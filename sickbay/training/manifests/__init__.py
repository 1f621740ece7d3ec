"""Attempts as Kubernetes objects: one small adapter for each API that can run a training job.

Called by `activities.jobs` and, for what a person submits, by `sickbay train submit`. An adapter knows where its kind
keeps pods, sizes and restarts; what all have in common (names, fence, variables, exclusions) is in `attempt`.
"""

from collections.abc import Mapping
from typing import Any, Final

from sickbay.training.attempts import AttemptPlan
from sickbay.training.job import JobKind, TrainingSpec
from sickbay.training.manifests import indexed_job, job_set, pytorch_job, train_job
from sickbay.training.manifests.adapter import Adapter, ApiKind
from sickbay.training.manifests.attempt import GPU
from sickbay.training.manifests.shapes import WithMetadata, problems_of

ADAPTERS: Final[Mapping[JobKind, Adapter]] = {
    JobKind.INDEXED_JOB: indexed_job.ADAPTER,
    JobKind.JOB_SET: job_set.ADAPTER,
    JobKind.PYTORCH_JOB: pytorch_job.ADAPTER,
    JobKind.TRAIN_JOB: train_job.ADAPTER,
}


class UnknownKindError(ValueError):
    """No adapter runs objects of this kind."""


def adapter_of(manifest: Mapping[str, Any]) -> Adapter:
    """The adapter of an object. Raises UnknownKindError."""
    wanted = (str(manifest.get("apiVersion", "")).partition("/")[0], str(manifest.get("kind", "")))
    for adapter in ADAPTERS.values():
        if (adapter.api.group, adapter.api.kind) == wanted:
            return adapter
    known = ", ".join(f"{adapter.api.kind} ({adapter.api.api_version})" for adapter in ADAPTERS.values())
    raise UnknownKindError(f"{wanted[1] or 'an object without kind'} cannot be run; use one of {known}")


def check(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """What keeps an object from being run, each in words with path and cure; empty if nothing does."""
    try:
        adapter = adapter_of(manifest)
    except UnknownKindError as error:
        return (str(error),)
    if str(manifest.get("apiVersion")) != adapter.api.api_version:
        return (f"apiVersion {manifest.get('apiVersion')} is not known; use {adapter.api.api_version}",)
    return (*problems_of(WithMetadata, manifest), *problems_of(adapter.shape, manifest)) or adapter.check(manifest)


def render(spec: TrainingSpec, plan: AttemptPlan) -> dict[str, Any]:
    """The object of an attempt; the same plan gives the same object."""
    return adapter_of(spec.manifest).render(spec, plan)


# What follows is for objects that have passed `check`.


def nodes_of(manifest: Mapping[str, Any]) -> int:
    """How many pods the object has by itself."""
    return adapter_of(manifest).nodes_of(manifest)


def api_of(manifest: Mapping[str, Any]) -> ApiKind:
    """Where objects of this kind are in the API."""
    return adapter_of(manifest).api


def pod_spec_of(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """The pod's spec that decides where the attempt can run; empty where the object has none of its own."""
    return adapter_of(manifest).pod_spec_of(manifest)


def gpus_per_node(manifest: Mapping[str, Any]) -> int:
    """GPUs that each pod asks for."""
    total = 0
    for container in pod_spec_of(manifest).get("containers") or ():
        resources = container.get("resources") or {}
        wanted = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
        total += int(wanted.get(GPU, 0))
    return total or train_job.gpus_of(manifest)
