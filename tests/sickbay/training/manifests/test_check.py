"""What people may hand in, and what they are told of the rest."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.training import manifests
from sickbay.training.job import JobKind
from tests.sickbay.training.manifests.given import (
    MANIFESTS,
    indexed_job,
    job_set,
    plan_of,
    put,
    pytorch_job,
    spec_of,
    train_job,
)

JOB_TEMPLATE = "spec.template.spec"
SET_JOB = "spec.replicatedJobs.1.template.spec"
WORKER = "spec.pytorchReplicaSpecs.Worker"


@pytest.mark.parametrize("kind", list(JobKind))
def test_a_plain_object_of_each_kind_has_no_problem(kind: JobKind) -> None:
    manifest = MANIFESTS[kind]
    assert manifests.check(manifest) == ()
    assert (manifests.nodes_of(manifest), manifests.gpus_per_node(manifest)) == (2, 8)


@pytest.mark.parametrize(
    ("manifest", "told"),
    [
        ({}, "an object without kind cannot be run"),
        ({"apiVersion": "apps/v1", "kind": "Deployment"}, "Deployment cannot be run; use one of Job (batch/v1)"),
        (put(indexed_job(), "apiVersion", "batch/v1beta1"), "apiVersion batch/v1beta1 is not known; use batch/v1"),
        (put(indexed_job(), "spec", None), "spec is missing"),
        (put(indexed_job(), "spec.template", None), "spec.template is missing"),
        (put(indexed_job(), f"{JOB_TEMPLATE}.containers", []), "spec.template.spec.containers is empty"),
        (put(indexed_job(), f"{JOB_TEMPLATE}.containers", "main"), "spec.template.spec.containers: input should be"),
        (put(indexed_job(), f"{JOB_TEMPLATE}.restartPolicy", "OnFailure"), "restartPolicy is OnFailure: set Never"),
        (put(indexed_job(), f"{JOB_TEMPLATE}.nodeName", "node-a"), "spec.template.spec.nodeName pins the pod"),
        (put(indexed_job(), f"{JOB_TEMPLATE}.containers.0.resources.limits", {"nvidia.com/gpu": "8k"}), "is 8k: GPUs"),
        (put(indexed_job(), "metadata.labels", {"team": 7}), "metadata.labels.team: input should be a valid string"),
        (put(indexed_job(), "spec.parallelism", 4), "spec.completions and spec.parallelism must be"),
        (put(indexed_job(), "spec.parallelism", "2"), "spec.parallelism: input should be a valid integer"),
        (put(indexed_job(), "spec.parallelism", None), "spec.completions and spec.parallelism must be"),
        (put(indexed_job(), "spec.completionMode", "NonIndexed"), "spec.completionMode must be Indexed"),
        (put(indexed_job(), "spec.backoffLimit", 6), "spec.backoffLimit must be 0 or left out"),
        (put(indexed_job(), "spec.backoffLimitPerIndex", 1), "spec.backoffLimitPerIndex must be left out"),
        (put(indexed_job(), "spec.podFailurePolicy", {"rules": []}), "spec.podFailurePolicy must be left out"),
        (put(indexed_job(), "spec.ttlSecondsAfterFinished", 0), "spec.ttlSecondsAfterFinished must be left out"),
        (put(indexed_job(), "spec.selector", {"matchLabels": {}}), "spec.selector must be left out"),
        (put(job_set(), "spec.replicatedJobs", []), "spec.replicatedJobs is empty"),
        (put(job_set(), "spec.failurePolicy", {"maxRestarts": 3}), "spec.failurePolicy must be left out"),
        (put(job_set(), "spec.failurePolicy", {"rules": [{"action": "RestartJobSet"}]}), "spec.failurePolicy must"),
        (put(job_set(), "spec.ttlSecondsAfterFinished", 60), "spec.ttlSecondsAfterFinished must be left out"),
        (put(job_set(), "spec.replicatedJobs.1.replicas", 0), "spec.replicatedJobs: worker has no pods"),
        (put(job_set(), f"{SET_JOB}.backoffLimit", 1), "spec.replicatedJobs[1].template.spec.backoffLimit must be 0"),
        (put(job_set(), f"{SET_JOB}.ttlSecondsAfterFinished", 1), "[1].template.spec.ttlSecondsAfterFinished must"),
        (put(job_set(), f"{SET_JOB}.template.spec.nodeName", "n"), "[1].template.spec.template.spec.nodeName pins"),
        (put(pytorch_job(), "spec.pytorchReplicaSpecs", {}), "spec.pytorchReplicaSpecs is empty"),
        (put(pytorch_job(), f"{WORKER}.restartPolicy", "ExitCode"), f"{WORKER}.restartPolicy must be Never"),
        (put(pytorch_job(), f"{WORKER}.replicas", 0), f"{WORKER}.replicas must be a number above 0"),
        (put(pytorch_job(), WORKER.replace("Worker", "Helper"), pytorch_job()["spec"]["pytorchReplicaSpecs"]["Worker"]),
         "spec.pytorchReplicaSpecs.Helper is not known; use Master and Worker"),
        (put(pytorch_job(), "spec.elasticPolicy", {"minReplicas": 1}), "spec.elasticPolicy must be left out"),
        (put(pytorch_job(), "spec.runPolicy", {"cleanPodPolicy": "Running"}), "runPolicy.cleanPodPolicy must be None"),
        (put(pytorch_job(), "spec.runPolicy", {"ttlSecondsAfterFinished": 1}), "ttlSecondsAfterFinished must be left"),
        (put(train_job(), "spec.runtimeRef", {}), "spec.runtimeRef.name is missing"),
        (put(train_job(), "spec.trainer.numNodes", 0), "spec.trainer.numNodes must say how many nodes"),
        (put(train_job(), "spec.trainer.resourcesPerNode.limits", {"nvidia.com/gpu": -1}), "is -1: GPUs are asked"),
        (put(train_job(), "spec.runtimePatches", [{"trainingRuntimeSpec": []}]), "spec.runtimePatches[0].manager is"),
    ],
)  # fmt: skip
def test_what_would_break_an_attempt_is_told_with_its_path_and_cure(manifest: dict[str, Any], told: str) -> None:
    assert any(told in problem for problem in manifests.check(manifest)), manifests.check(manifest)


def test_null_is_as_good_as_left_out() -> None:
    manifest = indexed_job()
    for path in ("metadata", "spec.backoffLimit", "spec.selector", f"{JOB_TEMPLATE}.restartPolicy"):
        manifest = put(manifest, path, None)
    assert manifests.check(manifest) == ()
    assert manifests.render(spec_of(manifest), plan_of())["metadata"]["name"] == "llama-a3"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=5,
)


def paths(value: Any, before: str = "") -> list[str]:
    """Every place in an object."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = []
    for key, inner in items:
        found += [f"{before}{key}", *paths(inner, f"{before}{key}.")]
    return [path for path in found if "/" not in path]


ADDED = [
    f"{JOB_TEMPLATE}.containers.0.env",
    f"{JOB_TEMPLATE}.containers.0.volumeMounts",
    f"{JOB_TEMPLATE}.initContainers",
    f"{JOB_TEMPLATE}.volumes",
    f"{JOB_TEMPLATE}.affinity",
    f"{JOB_TEMPLATE}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution",
    f"{JOB_TEMPLATE}.tolerations",
    "spec.template.metadata",
    "spec.failurePolicy",
    "spec.runPolicy",
    "spec.trainer.env",
    "spec.runtimePatches",
]


@pytest.mark.parametrize("kind", list(JobKind))
@given(data=st.data())
def test_whatever_stands_in_an_object_it_is_told_or_it_can_be_rendered(kind: JobKind, data: st.DataObject) -> None:
    manifest = MANIFESTS[kind]
    # Only a kind with a pod template of this path can have it deepened there.
    added = [path for path in ADDED if kind is JobKind.INDEXED_JOB or not path.startswith("spec.template")]
    path = data.draw(st.sampled_from(paths(manifest) + added))
    broken = put(manifest, path, data.draw(ANYTHING))
    if manifests.check(broken):
        return
    assert manifests.nodes_of(broken) > 0
    assert manifests.gpus_per_node(broken) >= 0
    rendered = manifests.render(spec_of(broken), plan_of())
    assert rendered == manifests.render(spec_of(broken), plan_of())


@given(ANYTHING, st.sampled_from(list(JobKind)))
def test_a_check_never_raises(spec: Any, kind: JobKind) -> None:
    api = manifests.ADAPTERS[kind].api
    assert manifests.check({"apiVersion": api.api_version, "kind": api.kind, "spec": spec}) != ()
