"""The objects of attempts, by table for each kind."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from sickbay import names
from sickbay.kube_objects import Pod
from sickbay.training import manifests
from sickbay.training.attempt_reading import rank_of
from sickbay.training.job import JobKind
from sickbay.training.manifests.attempt import ANNOTATION_NODES, NO_RANK_FOLDER
from tests.sickbay.training.manifests.given import (
    MANIFESTS,
    REF,
    checkpoint,
    indexed_job,
    job_set,
    keeps_off,
    plan_of,
    put,
    pytorch_job,
    spec_of,
    train_job,
)

EVERY_KIND = pytest.mark.parametrize("kind", list(JobKind))
WITH_TEMPLATE = pytest.mark.parametrize("kind", [kind for kind in JobKind if kind is not JobKind.TRAIN_JOB])
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def templates(value: Any) -> Iterator[dict[str, Any]]:
    """Every pod template in an object."""
    if isinstance(value, dict):
        if "containers" in (value.get("spec") or {}):
            yield value
        for inner in value.values():
            yield from templates(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from templates(inner)


def rendered(kind: JobKind, **plan: Any) -> dict[str, Any]:
    return manifests.render(spec_of(MANIFESTS[kind]), plan_of(**plan))


def variables(template: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in template["spec"]["containers"][0]["env"]}


@EVERY_KIND
def test_an_attempts_object_bears_its_name_number_and_fence(kind: JobKind) -> None:
    metadata = rendered(kind)["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("llama-a3", "ml")
    assert (metadata["labels"][names.LABEL_JOB], metadata["labels"][names.LABEL_ATTEMPT]) == ("llama", "3")
    assert metadata["annotations"][names.ANNOTATION_FENCE] == REF.fence


@EVERY_KIND
def test_its_pods_bear_them_too_and_nobody_else_moves_them(kind: JobKind) -> None:
    for template in templates(rendered(kind)):
        metadata = template["metadata"]
        assert metadata["labels"] == {names.LABEL_JOB: "llama", names.LABEL_ATTEMPT: "3"}
        assert metadata["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
        assert metadata["annotations"][names.ANNOTATION_FENCE] == REF.fence


@EVERY_KIND
def test_the_same_plan_gives_the_same_object_and_leaves_the_manifest_alone(kind: JobKind) -> None:
    spec = spec_of(MANIFESTS[kind])
    before = copy.deepcopy(spec.manifest)
    plan = plan_of(exclusions=(keeps_off("node-b"), keeps_off("node-a")))
    assert manifests.render(spec, plan) == manifests.render(spec, plan)
    assert spec.manifest == before


@EVERY_KIND
def test_what_was_rendered_can_be_rendered_again(kind: JobKind) -> None:
    plan = plan_of(exclusions=(keeps_off("node-a"),), resume=checkpoint(500))
    first = manifests.render(spec_of(MANIFESTS[kind]), plan)
    again = manifests.render(spec_of(first), plan.model_copy(update={"exclusions": ()}))
    assert again == first


@EVERY_KIND
@pytest.mark.parametrize("nodes", [1, 2, 3, 4])
def test_it_has_the_size_of_the_plan(kind: JobKind, nodes: int) -> None:
    assert manifests.nodes_of(rendered(kind, nodes=nodes)) == nodes


@WITH_TEMPLATE
def test_a_script_is_told_what_its_attempt_is(kind: JobKind) -> None:
    for template in templates(rendered(kind, resume=checkpoint(500), accumulation=4)):
        assert variables(template) == {
            names.ENV_JOB: "ml/llama",
            names.ENV_ATTEMPT: "3",
            names.ENV_NODES: "2",
            names.ENV_ACCUMULATION: "4",
            names.ENV_CHECKPOINT_URL: "s3://bucket/llama",
            names.ENV_RESUME_FROM: "s3://bucket/llama/step-500",
            names.ENV_RESUME_STEP: "500",
            names.ENV_RANK_DIR: names.RANK_DIR,
        }


def test_a_script_without_a_checkpoint_begins_at_the_beginning() -> None:
    (template,) = templates(rendered(JobKind.INDEXED_JOB))
    told = variables(template)
    assert (told[names.ENV_RESUME_FROM], told[names.ENV_RESUME_STEP]) == ("", "")
    assert names.ENV_ACCUMULATION not in told


def test_a_users_own_variables_stay_and_may_refer_to_ours() -> None:
    own = [{"name": "OUT", "value": "$(SICKBAY_CHECKPOINT_URL)/x"}, {"name": names.ENV_ATTEMPT, "value": "77"}]
    manifest = put(indexed_job(), "spec.template.spec.containers.0.env", own)
    (template,) = templates(manifests.render(spec_of(manifest), plan_of()))
    told = template["spec"]["containers"][0]["env"]
    assert told[-1] == own[0]
    assert [each["value"] for each in told if each["name"] == names.ENV_ATTEMPT] == ["3"]


@WITH_TEMPLATE
def test_pods_get_the_folder_of_rank_reports(kind: JobKind) -> None:
    for template in templates(rendered(kind)):
        (volume,) = template["spec"]["volumes"]
        (mount,) = template["spec"]["containers"][0]["volumeMounts"]
        assert volume["hostPath"] == {"path": names.RANK_DIR, "type": "DirectoryOrCreate"}
        assert (mount["name"], mount["mountPath"]) == (volume["name"], names.RANK_DIR)


@EVERY_KIND
def test_a_job_may_do_without_that_folder(kind: JobKind) -> None:
    manifest = put(MANIFESTS[kind], "metadata.annotations", {NO_RANK_FOLDER: "true"})
    made = manifests.render(spec_of(manifest), plan_of())
    assert "hostPath" not in str(made)
    assert names.ENV_RANK_DIR not in str(made)


def test_hard_exclusions_join_every_alternative_and_soft_ones_are_a_preference() -> None:
    zones = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
    ]
    manifest = put(
        indexed_job(), "spec.template.spec.affinity", {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": zones}}}
    )
    plan = plan_of(exclusions=(keeps_off("node-b"), keeps_off("node-a"), keeps_off("node-c", soft=True)))
    (template,) = templates(manifests.render(spec_of(manifest), plan))
    affinity = template["spec"]["affinity"]["nodeAffinity"]
    off = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["node-a", "node-b"]}
    first, second = affinity[REQUIRED]["nodeSelectorTerms"]
    assert first["matchExpressions"] == [*zones[0]["matchExpressions"], off]
    assert (second["matchExpressions"], second["matchFields"]) == ([off], zones[1]["matchFields"])
    (preference,) = affinity[PREFERRED]
    assert preference["preference"]["matchExpressions"][0]["values"] == ["node-c"]


@WITH_TEMPLATE
def test_every_pod_of_each_kind_keeps_off(kind: JobKind) -> None:
    for template in templates(rendered(kind, exclusions=(keeps_off("node-a"),))):
        terms = template["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
        assert [term["matchExpressions"][0]["values"] for term in terms] == [["node-a"]]


def test_without_exclusions_no_affinity_is_written() -> None:
    (template,) = templates(rendered(JobKind.INDEXED_JOB))
    assert "affinity" not in template["spec"]


@WITH_TEMPLATE
def test_nothing_but_the_workflow_restarts_a_rank(kind: JobKind) -> None:
    made = rendered(kind)
    if kind is not JobKind.PYTORCH_JOB:
        assert all(template["spec"]["restartPolicy"] == "Never" for template in templates(made))
    match kind:
        case JobKind.INDEXED_JOB:
            assert (made["spec"]["backoffLimit"], made["spec"]["podReplacementPolicy"]) == (0, "Failed")
        case JobKind.JOB_SET:
            assert made["spec"]["failurePolicy"] == {"maxRestarts": 0}
            inner = [job["template"]["spec"] for job in made["spec"]["replicatedJobs"]]
            assert {(job["backoffLimit"], job["podReplacementPolicy"]) for job in inner} == {(0, "Failed")}
        case _:
            replicas = made["spec"]["pytorchReplicaSpecs"].values()
            assert {replica["restartPolicy"] for replica in replicas} == {"Never"}
            assert made["spec"]["runPolicy"] == {"cleanPodPolicy": "None", "backoffLimit": 0}


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (JobKind.INDEXED_JOB, "spec.suspend"),
        (JobKind.JOB_SET, "spec.suspend"),
        (JobKind.PYTORCH_JOB, "spec.runPolicy.suspend"),
        (JobKind.TRAIN_JOB, "spec.suspend"),
    ],
)
def test_what_a_queue_needs_is_left_alone(kind: JobKind, path: str) -> None:
    manifest = put(put(MANIFESTS[kind], path, True), "metadata.labels", {"kueue.x-k8s.io/queue-name": "gpus"})
    made = manifests.render(spec_of(manifest), plan_of())
    here: Any = made
    for step in path.split("."):
        here = here[step]
    assert here is True
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"


def test_a_job_set_of_many_jobs_grows_by_jobs_and_one_of_many_pods_by_pods() -> None:
    def worker(manifest: dict[str, Any], nodes: int) -> tuple[int, int]:
        made = manifests.render(spec_of(manifest), plan_of(nodes=nodes))
        job = next(each for each in made["spec"]["replicatedJobs"] if each["name"] == "worker")
        return job["replicas"], job["template"]["spec"]["parallelism"]

    assert worker(job_set(nodes=4, replicas=4), 3) == (3, 1)
    assert worker(job_set(nodes=4), 3) == (1, 3)
    assert worker(job_set(nodes=4, replicas=2), 3) == (1, 3)


def test_a_job_sets_coordinator_counts_as_one_more_pod() -> None:
    made = rendered(JobKind.JOB_SET, nodes=2)
    assert made["metadata"]["annotations"][ANNOTATION_NODES] == "3"
    assert rendered(JobKind.INDEXED_JOB)["metadata"]["annotations"][ANNOTATION_NODES] == "2"


def test_a_pytorch_job_of_one_node_is_its_master() -> None:
    assert list(rendered(JobKind.PYTORCH_JOB, nodes=1)["spec"]["pytorchReplicaSpecs"]) == ["Master"]
    alone = pytorch_job()
    del alone["spec"]["pytorchReplicaSpecs"]["Master"]
    made = manifests.render(spec_of(alone), plan_of(nodes=4))
    assert made["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 4


def test_a_train_job_is_told_by_its_trainer_and_a_patch_of_ours() -> None:
    persons = {
        "manager": "me",
        "trainingRuntimeSpec": {
            "template": {
                "spec": {
                    "replicatedJobs": [
                        {
                            "name": "node",
                            "template": {
                                "spec": {
                                    "template": {
                                        "spec": {
                                            "nodeSelector": {"pool": "p5"},
                                            "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [ZONE]}}},
                                        }
                                    }
                                }
                            },
                        }
                    ]
                }
            }
        },
    }
    manifest = put(train_job(), "spec.runtimePatches", [persons])
    assert manifests.check(manifest) == ()
    assert manifests.pod_spec_of(manifest)["nodeSelector"] == {"pool": "p5"}
    made = manifests.render(spec_of(manifest), plan_of(nodes=3, exclusions=(keeps_off("node-a"),)))
    assert made["spec"]["trainer"]["numNodes"] == 3
    assert {"name": names.ENV_ATTEMPT, "value": "3"} in made["spec"]["trainer"]["env"]
    kept, ours = made["spec"]["runtimePatches"]
    assert kept == persons
    (job,) = ours["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    template = job["template"]["spec"]["template"]
    (term,) = template["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert [each["key"] for each in term["matchExpressions"]] == ["zone", "kubernetes.io/hostname"]
    assert template["metadata"]["annotations"][names.ANNOTATION_FENCE] == REF.fence


ZONE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}


@pytest.mark.parametrize(
    ("kind", "labels", "annotations", "rank"),
    [
        (JobKind.INDEXED_JOB, {"batch.kubernetes.io/job-completion-index": "5"}, {}, 5),
        (JobKind.INDEXED_JOB, {}, {"batch.kubernetes.io/job-completion-index": "5"}, 5),
        (JobKind.INDEXED_JOB, {"batch.kubernetes.io/job-completion-index": "five"}, {}, 0),
        (JobKind.INDEXED_JOB, {"batch.kubernetes.io/job-completion-index": "9" * 40}, {}, 0),
        (JobKind.JOB_SET, {"batch.kubernetes.io/job-completion-index": "1"}, {"sickbay.dev/rank-stride": "4"}, 1),
        (
            JobKind.JOB_SET,
            {"batch.kubernetes.io/job-completion-index": "1", "jobset.sigs.k8s.io/job-index": "2"},
            {"sickbay.dev/rank-stride": "4"},
            9,
        ),
        (JobKind.PYTORCH_JOB, {"training.kubeflow.org/replica-index": "0"}, {"sickbay.dev/rank-offset": "1"}, 1),
        (JobKind.PYTORCH_JOB, {"training.kubeflow.org/replica-index": "0"}, {}, 0),
        (JobKind.TRAIN_JOB, {"batch.kubernetes.io/job-completion-index": "3"}, {}, 3),
    ],
)
def test_a_pods_rank_is_read_as_its_kind_tells_it(
    kind: JobKind, labels: dict[str, str], annotations: dict[str, str], rank: int
) -> None:
    pod = Pod.model_validate({"metadata": {"name": "p", "labels": labels, "annotations": annotations}})
    assert rank_of(pod, manifests.ADAPTERS[kind]) == rank


def test_no_two_pods_of_a_job_set_share_a_rank() -> None:
    made = manifests.render(spec_of(job_set(nodes=4, replicas=2)), plan_of(nodes=6))
    ranks = []
    for job in made["spec"]["replicatedJobs"]:
        template = job["template"]["spec"]["template"]["metadata"]
        for number in range(job["replicas"]):
            for index in range(job["template"]["spec"]["parallelism"]):
                labels = {
                    "jobset.sigs.k8s.io/job-index": str(number),
                    "batch.kubernetes.io/job-completion-index": str(index),
                }
                pod = Pod.model_validate({"metadata": {**template, "labels": labels}})
                ranks.append((job["name"], rank_of(pod, manifests.ADAPTERS[JobKind.JOB_SET])))
    assert sorted(rank for name, rank in ranks if name == "worker") == list(range(6))
    assert [rank for name, rank in ranks if name == "coordinator"] == [6]
