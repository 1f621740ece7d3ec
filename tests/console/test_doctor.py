"""What a cluster lacks, as `sickbay doctor` says it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from console.main import run
from sickbay.cluster_survey import Ailment, DaemonSet, NodePool, ailments
from sickbay.kube_objects import Node
from sickbay.names import CONDITION_GPU, TAINT_ADMISSION, TAINT_INCIDENT
from sickbay.policy.file import Policy, default_policy, parse_policy
from simulator.kube.kubeconfig import write_kubeconfig
from tests.kube_under_test import KubeUnderTest
from workers.search_attributes import register_search_attributes

ADMITTING = "version: a\npools: {p5: {admission: {enabled: true}}}"
LABELS = {"karpenter.sh/nodepool": "p5", "nvidia.com/gpu.present": "true", "kubernetes.io/os": "linux"}
OURS = {"key": TAINT_ADMISSION, "effect": "NoSchedule"}


def policy(text: str) -> Policy:
    return parse_policy(text.encode())


def gpu_node(*taints: dict[str, str], agent: bool = True, **labels: str) -> Node:
    conditions = [{"type": CONDITION_GPU, "status": "True"}] if agent else []
    return Node.model_validate(
        {
            "metadata": {"name": "n1", "uid": "u1", "labels": {**LABELS, **labels}},
            "spec": {"taints": taints},
            "status": {"conditions": conditions},
        }
    )


def daemon_set(*tolerations: dict[str, str], affinity: Any = None, **selector: str) -> DaemonSet:
    spec = {"nodeSelector": selector, "tolerations": tolerations, "affinity": affinity or {}}
    metadata = {"namespace": "gpu-operator", "name": "device-plugin"}
    return DaemonSet.model_validate({"metadata": metadata, "spec": {"template": {"spec": spec}}})


def node_pool(*taints: dict[str, str], name: str = "p5") -> NodePool:
    template = {"metadata": {"labels": {"team": "a"}}, "spec": {"startupTaints": taints}}
    return NodePool.model_validate({"metadata": {"name": name}, "spec": {"template": template}})


def what(found: tuple[Ailment, ...]) -> list[str]:
    return [ailment.what for ailment in found]


TOLERATES = {"key": TAINT_ADMISSION, "operator": "Exists"}


@pytest.mark.parametrize(
    ("made", "ill"),
    [
        pytest.param(daemon_set(), True, id="no toleration"),
        pytest.param(daemon_set(TOLERATES), False, id="ours"),
        pytest.param(daemon_set({"operator": "Exists"}), False, id="everything"),
        pytest.param(daemon_set({**TOLERATES, "effect": "NoExecute"}), True, id="another effect"),
        pytest.param(daemon_set({"key": "nvidia.com/gpu", "operator": "Exists"}), True, id="another key"),
        pytest.param(daemon_set({"key": TAINT_ADMISSION, "value": "x"}), True, id="another value"),
        pytest.param(daemon_set(**{"kubernetes.io/os": "windows"}), False, id="never on this node"),
        pytest.param(daemon_set(**{"nvidia.com/gpu.deploy.dcgm": "true"}), True, id="by a label that comes late"),
    ],
)
def test_a_daemon_set_of_gpu_nodes_needs_the_toleration(made: DaemonSet, ill: bool) -> None:
    found = what(ailments(policy(ADMITTING), [gpu_node()], [node_pool(OURS)], [made]))
    # A pool's own labels are not all that its nodes have, so the node alone can rule a selector out.
    alone = what(ailments(policy(ADMITTING), [gpu_node()], [], [made]))
    assert bool(alone) == ill
    assert not ill or "gpu-operator/device-plugin" in found[0]


@pytest.mark.parametrize(
    ("operator", "values", "may"),
    [("In", ["linux"], True), ("In", ["windows"], False), ("NotIn", ["linux"], False), ("Exists", [], True),
     ("DoesNotExist", [], False), ("Gt", ["1"], True)],
)  # fmt: skip
def test_an_affinity_that_excludes_gpu_nodes_needs_none(operator: str, values: list[str], may: bool) -> None:
    expression = {"key": "kubernetes.io/os", "operator": operator, "values": values}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    found = ailments(policy(ADMITTING), [gpu_node()], [], [daemon_set(affinity=affinity)])
    assert bool(found) == may


def test_without_admission_no_toleration_is_asked_for() -> None:
    assert ailments(default_policy(), [gpu_node()], [node_pool()], [daemon_set()]) == ()


def test_the_taint_of_incidents_is_looked_for_where_the_policy_uses_it() -> None:
    rules = policy("version: a\ndefaults: {taint: {enabled: true}}")
    (found,) = ailments(rules, [gpu_node()], [], [daemon_set()])
    assert TAINT_INCIDENT in found.what


def test_a_pool_and_the_policy_must_agree_on_admission() -> None:
    (lacks,) = ailments(policy(ADMITTING), [], [node_pool(), node_pool(name="cpu")], [])
    assert lacks.what.startswith("NodePool p5")
    assert "startupTaints" in lacks.cure
    (left,) = ailments(default_policy(), [], [node_pool(OURS)], [])
    assert "nobody takes it away" in left.what


def test_nodes_that_nobody_admits_and_nodes_without_an_agent_are_named() -> None:
    found = what(ailments(default_policy(), [gpu_node(OURS, agent=False)], [], []))
    assert any("the policy admits none of their pools: n1" in each for each in found)
    assert any("no Sickbay agent has ever reported: n1" in each for each in found)


@pytest.fixture
def kubeconfig(kube_server: KubeUnderTest, tmp_path: Path) -> Path:
    if kube_server.is_real:
        pytest.skip("a real kube-apiserver asks who one is, which this kubeconfig does not say")
    file = tmp_path / "kubeconfig"
    write_kubeconfig(file, kube_server.url)
    return file


async def typed(*words: str) -> int:
    """A command line, in a thread as it has a loop of its own."""
    return await asyncio.to_thread(run, ["doctor", *words])


async def test_the_command_tells_each_with_its_cure(
    kube_server: KubeUnderTest,
    kubeconfig: Path,
    dev_server: WorkflowEnvironment,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", dev_server.client.service_client.config.target_host)
    await register_search_attributes(dev_server.client)
    await kube_server.create_node("n1", provider_id="aws:///eu-west-1a/i-1", labels=LABELS, taints=[OURS])
    assert await typed("--kubeconfig", str(kubeconfig)) == 1
    out = capsys.readouterr().out
    assert "the policy admits none of their pools: n1" in out
    assert "cure: " in out
    assert "search attributes" not in out


async def test_a_temporal_that_is_away_is_one_of_the_findings(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    assert await typed("--kubeconfig", str(kubeconfig)) == 1
    assert "no Temporal server answers at 127.0.0.1:1" in capsys.readouterr().out


async def test_a_cluster_that_cannot_be_reached_is_the_users_to_mend(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await typed("--kubeconfig", str(tmp_path / "none")) == 2
    assert "name a readable kubeconfig file" in capsys.readouterr().err
