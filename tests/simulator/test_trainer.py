"""The trainer of simulated jobs: its weights are the same to the last bit whatever it runs on, and it fails as real
ones do, in words that the classification knows."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import pytest

from sickbay.training.failures.classify import classify
from sickbay.training.failures.folder import evidence_of_text
from sickbay.training.verdicts import FailureVerdict
from simulator.cluster.objects import Pod
from simulator.cluster.pod_processes import COMPLETION_INDEX, PodProcesses
from simulator.trainer.ring import resolved
from simulator.trainer.saving import MANIFEST, WEIGHTS
from tests.simulator.waiting import SOON, until

STEPS = 12


class Attempt:
    """The ranks of one attempt, each a pod on a host of its own."""

    def __init__(self, trainings: "Trainings", number: int, world: int) -> None:
        self.trainings, self.number, self.world = trainings, number, world
        self.checkpoints = trainings.folder / f"checkpoints-{number}"
        self.pods: list[Pod] = []

    async def begin(self, words: tuple[str, ...], variables: dict[str, str]) -> None:
        for rank in range(self.world):
            self.host(rank).mkdir(exist_ok=True)
            self.pods.append(self._pod(rank, words, variables))
            await self.trainings.processes.start(self.pods[-1], self.host(rank), "boot")

    def host(self, rank: int) -> Path:
        return self.trainings.folder / f"host-{rank}"

    def process(self, rank: int) -> int:
        running = self.trainings.processes.find(self.pods[rank])
        assert running is not None
        assert running.process is not None
        return running.process.pid

    def log(self, rank: int) -> str:
        return (self.trainings.processes.log_of("default", self.pods[rank].name) or b"").decode()

    def steps_saved(self) -> list[int]:
        return sorted(int(path.parent.name.removeprefix("step-")) for path in self.checkpoints.glob(f"*/{MANIFEST}"))

    def steps_told(self, rank: int) -> list[int]:
        """The steps that the rank's reporter told on its host."""
        lines = (self.host(rank) / f"run/ranks/default_run/{self.number}/rank-{rank}.jsonl").read_text().splitlines()
        return [json.loads(line)["step"] for line in lines]

    async def ended(self) -> list[int | None]:
        """The exit codes of all ranks."""
        found = [self.trainings.processes.find(pod) for pod in self.pods]
        running = [each for each in found if each is not None]
        await until(lambda: all(each.exit_code is not None for each in running))
        return [each.exit_code for each in running]

    async def weights(self) -> str:
        """The checksum of the final weights, which all ranks tell alike."""
        codes = await self.ended()
        assert set(codes) == {0}, self.log(0)
        told: set[str] = {
            re.findall(rf"weights (\w+) at step {STEPS}\n", self.log(rank))[0] for rank in range(self.world)
        }
        assert len(told) == 1
        return told.pop()

    def verdict(self) -> FailureVerdict:
        logs = (f"### rank {rank}\n{self.log(rank)}" for rank in range(self.world))
        return classify(evidence_of_text("\n".join(logs)))

    def _pod(self, rank: int, words: tuple[str, ...], variables: dict[str, str]) -> Pod:
        name = f"run-a{self.number}-{rank}"
        given = {
            "SICKBAY_JOB": "default/run",
            "SICKBAY_ATTEMPT": str(self.number),
            "SICKBAY_NODES": str(self.world),
            "SICKBAY_CHECKPOINT_URL": str(self.checkpoints),
            "SICKBAY_RANK_DIR": str(self.host(rank) / "run/ranks"),
            "SICKBAY_REPORTER": str(resources.files("health") / "rank_reporter.py"),
            **variables,
        }
        container = {
            "name": "train",
            "command": [sys.executable, "-m", "simulator.trainer", "--step-seconds", "0", *words],
            "env": [{"name": key, "value": value} for key, value in given.items()],
        }
        metadata = {"name": name, "namespace": "default", "uid": name, "annotations": {COMPLETION_INDEX: str(rank)}}
        return Pod.model_validate({"metadata": metadata, "spec": {"hostname": name, "containers": [container]}})


@dataclass
class Trainings:
    """Attempts of one job, one after another."""

    processes: PodProcesses
    folder: Path
    attempts: int = 0

    async def begin(self, world: int = 1, *, steps: int = STEPS, save_every: int = 5, **variables: str) -> Attempt:
        self.attempts += 1
        attempt = Attempt(self, self.attempts, world)
        await attempt.begin(("--steps", str(steps), "--save-every", str(save_every)), variables)
        return attempt

    async def resume(self, world: int, path: Path, step: int) -> Attempt:
        return await self.begin(world, SICKBAY_RESUME_FROM=str(path), SICKBAY_RESUME_STEP=str(step))


@pytest.fixture
async def trainings(tmp_path: Path) -> AsyncIterator[Trainings]:
    processes = PodProcesses(tmp_path / "pods")
    yield Trainings(processes, tmp_path)
    await processes.close()


async def test_any_number_of_ranks_ends_with_the_same_weights_to_the_last_bit(trainings: Trainings) -> None:
    attempts = [await trainings.begin(world) for world in (1, 2, 3, 5)]
    assert len({await attempt.weights() for attempt in attempts}) == 1


async def test_a_resume_from_any_checkpoint_ends_with_the_weights_of_a_run_that_never_stopped(
    trainings: Trainings,
) -> None:
    whole = await trainings.begin(2, save_every=3)
    wanted = await whole.weights()
    assert whole.steps_saved() == [3, 6, 9, 12]
    resumed = [
        await trainings.resume(world, whole.checkpoints / f"step-{step:08d}", step)
        for world, step in ((1, 3), (2, 6), (3, 9), (1, 12))
    ]
    assert {await attempt.weights() for attempt in resumed} == {wanted}


async def test_its_losses_fall_as_those_of_a_model_that_learns(trainings: Trainings) -> None:
    attempt = await trainings.begin(steps=400)
    assert await attempt.ended() == [0]
    losses = [float(loss) for loss in re.findall(r"iteration \d+/400 \| loss: (\S+)\n", attempt.log(0))]
    assert len(losses) == 40
    assert losses[-1] < losses[0] / 2
    (rank,) = evidence_of_text(attempt.log(0)).ranks
    assert not {"loss-diverged", "loss-high"} & {sign.code for sign in rank.signs}


async def test_checkpoints_go_to_a_folder_that_is_named_by_its_url_too(trainings: Trainings) -> None:
    place = trainings.folder / "by-url"
    first = await trainings.begin(SICKBAY_CHECKPOINT_URL=place.as_uri())
    wanted = await first.weights()
    resumed = await trainings.begin(
        SICKBAY_RESUME_FROM=f"{place.as_uri()}/step-00000005", SICKBAY_RESUME_STEP="5", SICKBAY_CHECKPOINT_URL="out"
    )
    assert await resumed.weights() == wanted


async def test_no_numbers_end_every_rank_and_only_the_one_that_had_them_tells_of_them(trainings: Trainings) -> None:
    attempt = await trainings.begin(2, steps=1_000_000, save_every=50)
    await until(lambda: bool(attempt.steps_saved()))
    (attempt.host(1) / "trouble.json").write_text('{"nan": true}')
    assert await attempt.ended() == [1, 1]
    assert "[rank1]: found NaN in local grad norm at iteration" in attempt.log(1)
    assert "NaN" not in attempt.log(0)
    verdict = attempt.verdict()
    assert verdict.rule == "row-25-not-a-number"
    assert verdict.culprits == ("rank 1",)


async def test_a_step_with_values_that_are_no_numbers_is_never_saved(trainings: Trainings) -> None:
    trainings.folder.joinpath("host-0").mkdir()
    trainings.folder.joinpath("host-0", "trouble.json").write_text('{"nan": true}')
    attempt = await trainings.begin(save_every=1)
    assert await attempt.ended() == [1]
    assert attempt.steps_saved() == []


async def test_a_rank_that_is_asked_to_end_says_so_and_ends_as_by_the_signal(trainings: Trainings) -> None:
    attempt = await trainings.begin(steps=1_000_000)
    await until(lambda: bool(attempt.steps_saved()))
    await trainings.processes.end(attempt.pods[0], SOON)
    assert await attempt.ended() == [143]
    assert attempt.log(0).endswith("Received 15 death signal, shutting down\n")


async def test_a_lost_device_is_told_in_cudas_words_and_blames_its_rank(trainings: Trainings) -> None:
    attempt = await trainings.begin(2, steps=1_000_000)
    await until(lambda: bool(attempt.steps_saved()))
    (attempt.host(1) / "devices.json").write_text('{"lost": [3]}')
    assert await attempt.ended() == [1, 1]
    assert "[rank1]: RuntimeError: CUDA error: uncorrectable ECC error encountered (device 3)" in attempt.log(1)
    assert attempt.verdict().culprits == ("rank 1",)


@pytest.mark.parametrize("killed", [0, 1, 2])
async def test_a_killed_rank_ends_the_others_as_a_collective_does(trainings: Trainings, killed: int) -> None:
    attempt = await trainings.begin(3, steps=1_000_000)
    await until(lambda: bool(attempt.steps_saved()))
    os.kill(attempt.process(killed), signal.SIGKILL)
    codes = await attempt.ended()
    assert codes.pop(killed) == 137
    assert codes == [1, 1]
    others = {0, 1, 2} - {killed}
    assert all(f"[rank{rank}]: ncclRemoteError: remote process exited" in attempt.log(rank) for rank in others)


async def test_no_rank_goes_on_before_the_checkpoint_is_saved(trainings: Trainings) -> None:
    blocked = trainings.folder / "a-file"
    blocked.touch()
    attempt = await trainings.begin(2, SICKBAY_CHECKPOINT_URL=str(blocked / "checkpoints"))
    assert await attempt.ended() == [1, 1]
    assert attempt.steps_told(1) == [1, 2, 3, 4]


async def test_all_ranks_save_when_the_node_of_one_asks_for_a_checkpoint(trainings: Trainings) -> None:
    attempt = await trainings.begin(2, steps=1_000_000, save_every=1_000_000)
    asked = attempt.host(1) / f"run/ranks/default_run/{attempt.number}/checkpoint-now"
    await until(asked.parent.exists)
    asked.write_text("incident-1")
    await until(lambda: bool(attempt.steps_saved()))
    await asyncio.gather(*(trainings.processes.end(pod, SOON) for pod in attempt.pods))
    assert len(attempt.steps_saved()) == 1


@pytest.mark.parametrize(
    ("hosts", "address"),
    [
        ("127.20.0.1 run-a1-0\n127.20.0.2 x run-a1-0 y\n", "127.20.0.2"),
        ("127.20.0.1 run-a1-00\n127.20.0.2 run-a1-0", ""),
        ("", ""),
        (None, "run-a1-0"),
    ],
)
def test_a_name_is_looked_up_in_the_hosts_file_alone_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts: str | None, address: str
) -> None:
    if hosts is not None:
        (tmp_path / "hosts").write_text(hosts)
    monkeypatch.setenv("SIMULATOR_HOSTS", "" if hosts is None else str(tmp_path / "hosts"))
    assert resolved("run-a1-0") == address


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (WEIGHTS, b"PK"),
        (WEIGHTS, None),
        (MANIFEST, b'{"step": 5, "fi'),
        (MANIFEST, b"{}"),
        (MANIFEST, b"[]"),
        (MANIFEST, b'{"step": 6, "files": [{"sha256": ""}]}'),
        (MANIFEST, None),
    ],
)
async def test_a_checkpoint_that_is_not_whole_is_refused_in_words_that_say_so(
    trainings: Trainings, name: str, content: bytes | None
) -> None:
    first = await trainings.begin()
    await first.weights()
    path = first.checkpoints / "step-00000005"
    (path / name).unlink() if content is None else (path / name).write_bytes(content)
    attempt = await trainings.resume(1, path, 5)
    assert await attempt.ended() == [1]
    assert "[rank0]: RuntimeError: PytorchStreamReader failed reading" in attempt.log(0)
    assert attempt.verdict().rule == "row-24-checkpoint-unreadable"
