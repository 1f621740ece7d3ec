import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from simulator.cluster.objects import Pod
from simulator.cluster.pod_processes import CANNOT_RUN, LOG_KEPT, PodProcesses
from tests.simulator.hosts import alive, running_host
from tests.simulator.waiting import SOON, until

FOR_EVER = ("sleep", "600")
DEAF = "trap '' TERM; echo deaf; while :; do sleep 0.05; done"


def pod(*command: str, uid: str = "0123456789", **spec: object) -> Pod:
    first = {
        "name": "train",
        "command": list(command),
        **{key: spec.pop(key) for key in ("env", "volumeMounts") & spec.keys()},
    }
    metadata = {"name": f"train-{uid}", "namespace": "default", "uid": uid}
    return Pod.model_validate({"metadata": metadata, "spec": {"containers": [first], **spec}})


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncIterator[PodProcesses]:
    made = PodProcesses(tmp_path / "pods")
    yield made
    await made.close()


async def started(processes: PodProcesses, made: Pod, host: Path) -> int:
    """The process of a pod that was started."""
    await processes.start(made, host, "boot-1")
    running = processes.find(made)
    assert running is not None
    return running.process.pid if running.process is not None else 0


def exit_code(processes: PodProcesses, made: Pod) -> int | None:
    running = processes.find(made)
    assert running is not None
    return running.exit_code


async def printed(processes: PodProcesses, made: Pod, host: Path) -> str:
    """All that a pod printed, which ends by itself."""
    await processes.start(made, host, "boot-1")
    await until(lambda: exit_code(processes, made) is not None)
    return (processes.log_of("default", made.name) or b"").decode()


# One pod, without a cluster around it.


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill -15 $$", 143)])
async def test_an_exit_is_told_as_a_container_tells_it(
    processes: PodProcesses, tmp_path: Path, script: str, code: int
) -> None:
    made = pod("sh", "-c", script.replace("$$", "$$$$"))
    await started(processes, made, tmp_path)
    await until(lambda: exit_code(processes, made) == code)


@pytest.mark.parametrize("command", [("no-such-program",), ()])
async def test_a_command_that_cannot_be_run_has_ended_and_its_log_says_why(
    processes: PodProcesses, tmp_path: Path, command: tuple[str, ...]
) -> None:
    made = pod(*command)
    assert "exec: " in await printed(processes, made, tmp_path)
    assert exit_code(processes, made) == CANNOT_RUN
    await processes.end(made, 0)


async def test_a_pod_is_run_once_although_its_start_could_not_be_told(processes: PodProcesses, tmp_path: Path) -> None:
    made = pod(*FOR_EVER)
    first = await started(processes, made, tmp_path)
    assert await started(processes, made, tmp_path) == first


async def test_another_boot_runs_it_anew_when_the_process_of_the_boot_before_is_gone(
    processes: PodProcesses, tmp_path: Path
) -> None:
    made = pod(*FOR_EVER)
    first = await started(processes, made, tmp_path)
    await processes.start(made, tmp_path, "boot-2")
    assert not alive(first)
    assert exit_code(processes, made) is None


async def test_what_the_first_process_leaves_behind_ends_with_it(processes: PodProcesses, tmp_path: Path) -> None:
    made = pod("sh", "-c", "sleep 600 & echo $!")
    child = int(await printed(processes, made, tmp_path))
    await until(lambda: not alive(child))
    assert exit_code(processes, made) == 0


async def test_a_launcher_alone_is_asked_to_end_and_may_end_its_children_itself(
    processes: PodProcesses, tmp_path: Path
) -> None:
    child = "trap 'echo child was asked' TERM; while :; do sleep 0.05; done"
    made = pod("sh", "-c", f"trap 'echo launcher was asked; exit 5' TERM; sh -c \"{child}\" & echo ready; wait")
    await started(processes, made, tmp_path)
    await until(lambda: b"ready" in (processes.log_of("default", made.name) or b""))
    await processes.end(made, SOON)
    assert exit_code(processes, made) == 5
    assert processes.log_of("default", made.name) == b"ready\nlauncher was asked\n"


async def test_a_process_that_does_not_listen_is_killed_after_its_grace(
    processes: PodProcesses, tmp_path: Path
) -> None:
    made = pod("sh", "-c", DEAF)
    process = await started(processes, made, tmp_path)
    await until(lambda: b"deaf" in (processes.log_of("default", made.name) or b""))
    await processes.end(made, 0.2)
    assert exit_code(processes, made) == 137
    assert not alive(process)


async def test_a_process_in_its_grace_goes_down_with_its_machine(processes: PodProcesses, tmp_path: Path) -> None:
    made = pod("sh", "-c", DEAF)
    process = await started(processes, made, tmp_path)
    await until(lambda: b"deaf" in (processes.log_of("default", made.name) or b""))
    ending = asyncio.create_task(processes.end(made, 600))
    await asyncio.sleep(0)
    await processes.lose(made.metadata.uid)
    assert not alive(process)
    await asyncio.wait_for(ending, SOON)


async def test_a_simulation_that_ends_leaves_no_process_even_in_its_grace(tmp_path: Path) -> None:
    processes = PodProcesses(tmp_path / "pods")
    made = pod("sh", "-c", DEAF)
    process = await started(processes, made, tmp_path)
    await until(lambda: b"deaf" in (processes.log_of("default", made.name) or b""))
    ending = asyncio.create_task(processes.end(made, 600))
    await asyncio.sleep(0)
    ending.cancel()
    await processes.close()
    assert not alive(process)


async def test_a_pod_that_is_gone_takes_its_process_its_log_and_no_others_with_it(
    processes: PodProcesses, tmp_path: Path
) -> None:
    gone, kept = pod(*FOR_EVER, uid="gone"), pod(*FOR_EVER, uid="kept")
    process = await started(processes, gone, tmp_path)
    await started(processes, kept, tmp_path)
    processes.forget({"kept"})
    await until(lambda: not alive(process))
    assert processes.log_of("default", gone.name) is None
    assert exit_code(processes, kept) is None


async def test_a_process_that_has_ended_is_not_signalled_again_since_its_number_may_be_anothers(
    processes: PodProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pod("true")
    await printed(processes, made, tmp_path)
    monkeypatch.setattr(os, "killpg", lambda *words: pytest.fail(f"killpg{words}"))
    await processes.lose(made.metadata.uid)
    await processes.end(made, 0)
    processes.forget(set())


async def test_the_end_of_a_long_log_is_served(processes: PodProcesses, tmp_path: Path) -> None:
    made = pod(sys.executable, "-c", f"print('x' * {LOG_KEPT}); print('the end')")
    text = await printed(processes, made, tmp_path)
    assert len(text) == LOG_KEPT
    assert text.endswith("x\nthe end\n")


async def test_pods_of_two_clusters_on_one_machine_never_share_an_address(tmp_path: Path) -> None:
    clusters = [PodProcesses(tmp_path / name) for name in ("one", "two")]
    addresses = [cluster.address_of(pod(uid=uid)) for cluster in clusters for uid in ("a", "b", "a")]
    for cluster in clusters:
        await cluster.close()
    assert len(set(addresses)) == 4
    assert addresses[0] == addresses[2]


# What a process sees.


@pytest.mark.parametrize(
    ("word", "seen"),
    [
        ("$(NAME)", "ann"),
        ("a $(NAME) b$(NAME)", "a ann bann"),
        ("$$(NAME)", "$(NAME)"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$(REFERS)", "$(HOME)"),
        ("$(HOME)", "$(HOME)"),
        ("$NAME", "$NAME"),
    ],
)
async def test_words_of_a_command_are_expanded_once_and_by_the_containers_own_variables(
    processes: PodProcesses, tmp_path: Path, word: str, seen: str
) -> None:
    env = [{"name": "NAME", "value": "ann"}, {"name": "REFERS", "value": "$$(HOME)"}]
    assert await printed(processes, pod("echo", word, env=env), tmp_path) == f"{seen}\n"


async def test_a_pod_knows_itself_by_its_fields(processes: PodProcesses, tmp_path: Path) -> None:
    fields = ["metadata.name", "metadata.uid", "metadata.namespace", "metadata.labels['app.io/name']", "status.podIP"]
    env = [{"name": f"F{n}", "valueFrom": {"fieldRef": {"fieldPath": field}}} for n, field in enumerate(fields)]
    made = pod("sh", "-c", "echo $F0 $F1 $F2 $F3 $F4", env=env)
    made.metadata.labels["app.io/name"] = "llm"
    address = processes.address_of(made)
    assert await printed(processes, made, tmp_path) == f"{made.name} 0123456789 default llm {address}\n"


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("/ckpt", "{host}/mnt/all"),
        ("/ckpt/run", "{host}/mnt/all/run"),
        ("/ckpt/fast/run", "{host}/mnt/nvme/run"),
        ("file:///ckpt/run", "file://{host}/mnt/all/run"),
        ("/ckpt-of-another", "/ckpt-of-another"),
        ("s3://ckpt/run", "s3://ckpt/run"),
    ],
)
async def test_a_variable_that_names_a_mount_names_the_folder_of_the_host(
    processes: PodProcesses, tmp_path: Path, value: str, seen: str
) -> None:
    made = pod(
        "sh",
        "-c",
        "echo $PLACE",
        env=[{"name": "PLACE", "value": value}],
        volumeMounts=[{"name": "all", "mountPath": "/ckpt/"}, {"name": "fast", "mountPath": "/ckpt/fast"}],
        volumes=[
            {"name": "all", "hostPath": {"path": "/mnt/all"}},
            {"name": "fast", "hostPath": {"path": "/mnt/nvme"}},
        ],
    )
    assert await printed(processes, made, tmp_path) == seen.format(host=tmp_path) + "\n"
    assert (tmp_path / "mnt/nvme").is_dir()


async def test_every_pod_finds_the_newest_address_of_a_name(processes: PodProcesses, tmp_path: Path) -> None:
    made = pod("sh", "-c", "cat $SIMULATOR_HOSTS", hostname="job-0", subdomain="job")
    await printed(processes, made, tmp_path)
    newer = pod("sh", "-c", "cat $SIMULATOR_HOSTS", uid="newer", hostname="job-0", subdomain="job")
    lines = (await printed(processes, newer, tmp_path)).splitlines()
    assert lines == [f"{processes.address_of(each)} {each.name} job-0 job-0.job" for each in (made, newer)]


async def test_a_hosts_run_folder_is_empty_after_a_boot_and_its_disk_is_not(tmp_path: Path) -> None:
    async with running_host(tmp_path) as machine:
        assert machine.host_root is not None
        kept, lost = (machine.host_root / name / "file" for name in ("var", "run"))
        for path in (kept, lost):
            path.parent.mkdir(parents=True)
            path.touch()
        before = machine.boot_id
        await machine.reboot()
        await until(lambda: machine.boot_id not in ("", before))
        assert kept.exists()
        assert not lost.exists()
