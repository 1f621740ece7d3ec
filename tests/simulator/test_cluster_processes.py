"""Pods of a whole simulated cluster that are real processes."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from simulator.cluster import PoolKind
from simulator.cluster.job_objects import JobStatus
from simulator.cluster.objects import Pod
from simulator.cluster.pod_processes import CANNOT_RUN, RUN_PROCESS
from tests.simulator.cluster_world import ClusterWorld, open_cluster
from tests.simulator.hosts import alive
from tests.simulator.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:moto.*", "ignore::DeprecationWarning:botocore.*")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ClusterWorld]:
    async with open_cluster() as made:
        made.kube.pod_logs = made.cluster.processes.log_of
        await made.pool(PoolKind.NOBODY, 2)
        for machine in made.machines.by_node.values():
            machine.host_root = tmp_path / machine.node_name
        yield made


async def run(world: ClusterWorld, *command: str, workers: int = 1, gpus: int = 8, **spec: object) -> None:
    """Start a job whose pods are processes."""
    container = {
        "name": "train",
        "image": "simulated",
        "command": list(command),
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    template = {
        "metadata": {"annotations": {RUN_PROCESS: "true"}},
        "spec": {"restartPolicy": "Never", "containers": [container], **spec},
    }
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {
            "completionMode": "Indexed",
            "completions": workers,
            "parallelism": workers,
            "backoffLimit": 0,
            "template": template,
        },
    }
    await world.cluster.world.jobs.create(body, "default")


async def read(world: ClusterWorld, made: Pod, subresource: str = "") -> Any:
    url = f"{world.kube.url}/api/v1/namespaces/default/pods/{made.name}{subresource}"
    async with aiohttp.ClientSession() as session, session.get(url) as reply:
        assert reply.status == 200
        return await reply.text() if subresource else await reply.json()


def ended(world: ClusterWorld) -> list[Pod]:
    return [each for each in world.cluster.pods_of("train") if each.finished]


def status(world: ClusterWorld) -> JobStatus:
    (job,) = world.cluster.world.jobs
    return job.status


def pid(world: ClusterWorld, made: Pod) -> int:
    running = world.cluster.processes.find(made)
    assert running is not None
    assert running.process is not None
    return running.process.pid


async def running(world: ClusterWorld, script: str, **spec: Any) -> tuple[Pod, int]:
    """A pod whose process has said `ready`, and the process."""
    await run(world, "sh", "-c", script, **spec)
    await until(lambda: bool(world.running("train")))
    (made,) = world.running("train")
    await until(lambda: b"ready" in (world.cluster.processes.log_of("default", made.name) or b""))
    return made, pid(world, made)


@pytest.mark.parametrize(("code", "phase", "reason"), [(0, "Succeeded", "Completed"), (7, "Failed", "Error")])
async def test_a_pods_status_and_log_tell_how_its_process_ended(
    world: ClusterWorld, code: int, phase: str, reason: str
) -> None:
    await run(world, "sh", "-c", f"echo out; echo err >&2; exit {code}")
    await until(lambda: len(ended(world)) == 1)
    (made,) = ended(world)
    status = (await read(world, made))["status"]
    assert status["phase"] == phase
    told = status["containerStatuses"][0]["state"]["terminated"]
    assert (told["exitCode"], told["reason"]) == (code, reason)
    assert await read(world, made, "/log") == "out\nerr\n"
    assert await read(world, made, "/log?tailLines=1") == "err\n"
    assert not world.machine(made.spec.node_name).occupied


async def test_a_command_that_cannot_be_run_fails_its_pod(world: ClusterWorld) -> None:
    await run(world, "no-such-program")
    await until(lambda: len(ended(world)) == 1)
    status = (await read(world, ended(world)[0]))["status"]
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == CANNOT_RUN


async def test_a_deleted_pod_is_asked_to_end_and_gone_when_it_has(world: ClusterWorld) -> None:
    made, process = await running(world, "trap 'echo asked; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
    log = next((world.cluster.processes._folder).glob(f"{made.name}-*/log"))
    await world.cluster.world.pods.delete(made)
    await until(lambda: world.cluster.world.pods.get(made.name, "default") is None)
    assert not alive(process)
    assert log.read_text() == "ready\nasked\n"


async def test_a_deleted_pod_that_does_not_listen_is_killed_and_gone(world: ClusterWorld) -> None:
    made, process = await running(
        world, "trap '' TERM; echo ready; while :; do sleep 0.05; done", terminationGracePeriodSeconds=20
    )
    await world.cluster.world.pods.delete(made)
    await until(lambda: world.cluster.world.pods.get(made.name, "default") is None)
    assert not alive(process)


async def test_a_machine_that_goes_down_takes_its_process_with_it_at_once(world: ClusterWorld) -> None:
    made, process = await running(world, "echo ready; exec sleep 600")
    await world.machine(made.spec.node_name).stop()
    await until(lambda: not alive(process))


async def test_a_reboot_takes_the_process_and_fails_the_pod(world: ClusterWorld) -> None:
    made, process = await running(world, "echo ready; exec sleep 600")
    await world.machine(made.spec.node_name).reboot()
    await until(lambda: [each.metadata.uid for each in ended(world)] == [made.metadata.uid])
    await until(lambda: not alive(process))
    assert (await read(world, made))["status"]["reason"] == "NodeRebooted"


async def test_a_silent_kubelet_leaves_the_process_at_work(world: ClusterWorld) -> None:
    made, process = await running(world, "echo ready; exec sleep 600")
    world.machine(made.spec.node_name).hung = True
    await until(lambda: any(each.deleting for each in world.cluster.pods_of("train")))
    assert alive(process)
    world.machine(made.spec.node_name).hung = False
    await until(lambda: not alive(process))


async def test_a_worker_that_has_succeeded_is_not_started_again_when_its_pod_is_gone(world: ClusterWorld) -> None:
    await run(world, "sh", "-c", 'test "$JOB_COMPLETION_INDEX" = 0 || exec sleep 600', workers=2, gpus=4)
    await until(lambda: len(world.running("train")) == 1 and status(world).succeeded == 1)
    (done,) = ended(world)
    await world.cluster.world.pods.delete(done)
    await until(lambda: done.metadata.uid not in {each.metadata.uid for each in world.cluster.pods_of("train")})
    os.kill(pid(world, world.running("train")[0]), signal.SIGKILL)
    await until(lambda: status(world).failed == 1)
    assert len(world.cluster.pods_of("train")) == 1
    assert status(world).succeeded == 1


def keep_off(operator: str, *nodes: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": operator, "values": list(nodes)}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"nodeAffinity": required}


@pytest.mark.parametrize("excluded", ["p5-0", "p5-1"])
async def test_no_pod_comes_to_a_node_that_its_affinity_excludes(world: ClusterWorld, excluded: str) -> None:
    (other,) = {"p5-0", "p5-1"} - {excluded}
    await run(world, "sleep", "600", affinity=keep_off("NotIn", excluded))
    await until(lambda: bool(world.running("train")))
    assert [each.spec.node_name for each in world.running("train")] == [other]


async def test_a_pod_that_all_nodes_are_excluded_for_waits(world: ClusterWorld) -> None:
    await run(world, "sleep", "600", affinity=keep_off("NotIn", "p5-0", "p5-1"))
    await until(lambda: any(each.status.conditions for each in world.cluster.pods_of("train")))
    (waiting,) = world.cluster.pods_of("train")
    assert waiting.status.conditions[0].reason == "Unschedulable"
    assert not waiting.spec.node_name
