"""Where a job's pods could run, by table: the scheduler's rules as far as nodes go, and ours on top."""

from typing import Any

import pytest

from sickbay import names
from sickbay.kube_objects import Node, Pod
from sickbay.training.attempts import CapacityLook, Exclusion
from sickbay.training.capacity import UNFIT_TOLD, Need, look
from tests.sickbay.training.manifests.given import NOW, keeps_off

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def node(name: str = "n", *, taint: dict[str, str] | None = None, gpus: str = "8", **labels: str) -> Node:
    """A well node of eight GPUs."""
    return Node.model_validate(
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "labels": {"pool": "p5", **labels}},
            "spec": {"taints": [taint] if taint else []},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "capacity": {"nvidia.com/gpu": gpus} if gpus else {},
                "allocatable": {"nvidia.com/gpu": gpus} if gpus else {},
            },
        }
    )


def need(gpus: int = 8, exclusions: tuple[Exclusion, ...] = (), **pod_spec: Any) -> Need:
    return Need(pod_spec=pod_spec, gpus=gpus, job="llama", namespace="ml", exclusions=exclusions)


def ask(found: Node, wanted: Need, *pods: Pod) -> CapacityLook:
    return look([found], pods, wanted, NOW)


def demands(operator: str, *values: str, key: str = "pool") -> dict[str, Any]:
    """A required affinity of one demand."""
    expression = {"key": key, "operator": operator, "values": list(values)}
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}


@pytest.mark.parametrize(
    ("pod_spec", "matches"),
    [
        ({}, True),
        ({"nodeSelector": {"pool": "p5"}}, True),
        ({"nodeSelector": {"pool": "p4"}}, False),
        ({"nodeSelector": {"zone": "a"}}, False),
        ({"affinity": demands("In", "p4", "p5")}, True),
        ({"affinity": demands("In", "p4")}, False),
        ({"affinity": demands("NotIn", "p5")}, False),
        ({"affinity": demands("NotIn", "p4")}, True),
        ({"affinity": demands("Exists")}, True),
        ({"affinity": demands("Exists", key="zone")}, False),
        ({"affinity": demands("DoesNotExist", key="zone")}, True),
        ({"affinity": demands("DoesNotExist")}, False),
        ({"affinity": demands("Gt", "4")}, True),
        ({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}}, False),
        ({"affinity": {"podAntiAffinity": {}}}, True),
        ({"affinity": None, "nodeSelector": None, "tolerations": None}, True),
    ],
)
def test_a_node_that_the_template_rules_out_is_not_spoken_of(pod_spec: dict[str, Any], matches: bool) -> None:
    seen = ask(node(), need(**pod_spec))
    assert (seen.fitting, seen.unfit) == (("n",) if matches else (), ())


TAINT = {"key": "team", "value": "x", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("taint", "tolerations", "fits"),
    [
        (TAINT, [], False),
        (TAINT, [{"key": "team", "value": "x"}], True),
        (TAINT, [{"key": "team", "value": "y"}], False),
        (TAINT, [{"key": "team", "operator": "Exists"}], True),
        (TAINT, [{"operator": "Exists"}], True),
        (TAINT, [{"key": "team", "operator": "Exists", "effect": "NoExecute"}], False),
        ({**TAINT, "effect": "PreferNoSchedule"}, [], True),
        ({"key": "nvidia.com/gpu", "effect": "NoSchedule"}, [], True),
        ({"key": names.TAINT_ADMISSION, "effect": "NoSchedule"}, [], False),
    ],
)
def test_taints_count_as_the_scheduler_counts_them(
    taint: dict[str, str], tolerations: list[dict[str, str]], fits: bool
) -> None:
    seen = ask(node(taint=taint), need(tolerations=tolerations))
    assert (seen.fitting, seen.unfit) == (("n",), ()) if fits else ((), (f"n: taint {taint['key']}",))


def pod(gpus: str = "8", phase: str = "Running", job: str = "", namespace: str = "ml") -> Pod:
    """A pod on the node."""
    return Pod.model_validate(
        {
            "metadata": {"name": "p", "namespace": namespace, "labels": {names.LABEL_JOB: job}},
            "spec": {"nodeName": "n", "containers": [{"resources": {"limits": {"nvidia.com/gpu": gpus}}}]},
            "status": {"phase": phase},
        }
    )


@pytest.mark.parametrize(
    ("pods", "gpus", "why"),
    [
        ((), 8, ""),
        ((pod("1"),), 8, "7 of 8 GPUs are free"),
        ((pod("4"),), 4, ""),
        ((pod("4"), pod("4")), 1, "0 of 1 GPUs are free"),
        ((pod(phase="Succeeded"), pod(phase="Failed")), 8, ""),
        ((pod(phase="Pending"),), 8, "0 of 8 GPUs are free"),
        ((pod(job="llama"),), 8, ""),
        ((pod(job="llama", namespace="other"),), 8, "0 of 8 GPUs are free"),
    ],
)
def test_gpus_of_others_are_taken_and_those_of_the_job_are_room(pods: tuple[Pod, ...], gpus: int, why: str) -> None:
    seen = ask(node(), need(gpus), *pods)
    assert (seen.fitting, seen.unfit) == (("n",), ()) if not why else ((), (f"n: {why}",))


def test_a_node_without_gpus_is_no_place_for_a_pod_that_wants_some() -> None:
    assert ask(node(gpus=""), need()).unfit == ()
    assert ask(node(gpus=""), need(0)).fitting == ("n",)
    assert ask(node(gpus="0"), need()).unfit == ("n: 0 of 8 GPUs are free",)


def test_only_hard_and_living_exclusions_of_that_very_node_keep_off() -> None:
    hard = keeps_off("n")
    assert ask(node(), need(exclusions=(hard,))).unfit == ("n: it fell off the bus",)
    assert ask(node(), need(exclusions=(keeps_off("n", soft=True),))).fitting == ("n",)
    assert ask(node(), need(exclusions=(hard.model_copy(update={"until": NOW}),))).fitting == ("n",)
    renewed = ask(node(), need(exclusions=(hard.model_copy(update={"node_uid": "uid-of-before"}),)))
    assert (renewed.fitting, renewed.renewed) == (("n",), ("n",))


def test_of_a_large_cluster_not_every_reason_is_told() -> None:
    nodes = [node(f"n{number:03d}", taint=TAINT) for number in range(200)]
    seen = look(nodes, (), need(), NOW)
    assert len(seen.unfit) == UNFIT_TOLD
    assert seen.unfit[0] == "n000: taint team"
