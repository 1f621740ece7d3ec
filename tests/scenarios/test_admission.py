"""Admissions on real processes: new nodes, a node that fails, and one that somebody else reboots."""

from pathlib import Path

import pytest

from activities.aws_errors import ec2_client
from console.stage import CLUSTER
from sickbay import names
from sickbay.admission import AdmissionOutcome, AdmissionResult
from sickbay.incident import Outcome
from sickbay.kube_objects import Node
from sickbay.node_reading import awaits_admission
from tests.scenarios import faults
from tests.scenarios.case import Case
from tests.scenarios.cluster import Cluster, cluster
from tests.scenarios.stories import POLICY
from tests.scenarios.waiting import seen

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(300)]

SCENARIO = """
speed: 20
times: {boot: 20, reboot: 60, gpu_reset: 20}
pools:
  - {name: p5, kind: karpenter, nodes: 2, admission: true}
  - {name: group, kind: autoscaling, nodes: 1, admission: true}
jobs:
  - {name: llama, pool: p5, workers: 2}
"""
ADMITTED = """
pools:
  "*": {admission: {enabled: true, at_once: 1, look_every: 1s, depth: quick}}
"""


def admitted_in(node: Node) -> str:
    """The boot in which a node was admitted; empty while it bears our taint."""
    return "" if awaits_admission(node) else node.metadata.annotations.get(names.ANNOTATION_ADMITTED, "")


async def admitted(stage: Cluster, name: str, boot_id: str) -> None:
    """Wait until a node may work in this boot."""

    async def may_work() -> bool:
        return admitted_in(await stage.node(name)) == boot_id

    await seen(f"{name} is admitted in boot {boot_id}", may_work)


async def all_new_nodes_are_admitted_and_only_then_get_their_work(stage: Cluster) -> None:
    for node in await stage.nodes():
        await admitted(stage, node.metadata.name, node.status.node_info.boot_id)
        machine = names.machine_id(node.spec.provider_id, node.metadata.uid)
        handle = stage.client.get_workflow_handle(names.admission_id(CLUSTER, machine), result_type=AdmissionResult)
        assert (await handle.result()).outcome is AdmissionOutcome.ADMITTED

    async def works() -> bool:
        return all([any(pod.startswith("llama") for pod in await stage.pods_on(f"p5-{number}")) for number in (0, 1)])

    await seen("the job runs on the admitted nodes", works)


async def a_reboot_by_an_incident_is_no_second_admission(stage: Cluster) -> None:
    case = await Case.of(stage, "p5-0")
    await case.falls_ill(faults.NEEDS_REBOOT)
    assert (await case.ends()).outcome is Outcome.RETURNED
    node = await case.node()
    assert admitted_in(node) == node.status.node_info.boot_id
    query = f"WorkflowId = '{names.admission_id(CLUSTER, case.instance_id)}'"
    assert (await stage.client.count_workflows(query)).count == 1


async def a_node_that_somebody_else_reboots_gets_no_work_before_it_is_validated(stage: Cluster) -> None:
    case = await Case.of(stage, "group-0")
    before = (await case.machine()).boot_id
    ec2 = ec2_client("eu-west-1", stage.stage.simulator.aws)
    ec2.reboot_instances(InstanceIds=[case.instance_id])

    async def rebooted_and_held_back() -> bool:
        node = await case.node()
        return node.status.node_info.boot_id != before and awaits_admission(node)

    await seen("the taint is back", rebooted_and_held_back)
    await admitted(stage, case.name, (await case.node()).status.node_info.boot_id)


async def test_nodes_are_admitted_once_for_each_boot_that_nobody_has_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a person's")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a person's")
    async with cluster(SCENARIO, POLICY + ADMITTED, tmp_path) as stage:
        await all_new_nodes_are_admitted_and_only_then_get_their_work(stage)
        await a_reboot_by_an_incident_is_no_second_admission(stage)
        await a_node_that_somebody_else_reboots_gets_no_work_before_it_is_validated(stage)
