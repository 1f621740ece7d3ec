"""Real torchrun with DCP checkpoints, on CPUs: what it leaves is read by our own readers, and a resume loses no bit.

Runs with the interpreter of TORCH_PYTHON, else with the suite's own if that has torch:

    python3.11 -m venv /tmp/torch && /tmp/torch/bin/pip install torch numpy
    TORCH_PYTHON=/tmp/torch/bin/python python -m pytest tests/torch
"""

import asyncio
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from activities.checkpoints import CheckpointActivities
from sickbay.checkpoints.choice import choose
from sickbay.checkpoints.model import CheckpointFormat, CheckpointPlace, CheckpointQuery, Level, ResumeChoice
from sickbay.training.evidence import Evidence
from sickbay.training.failures.classify import classify
from sickbay.training.failures.folder import evidence_of_folder
from sickbay.training.history import JobHistory
from sickbay.training.verdicts import FailureAction, FailureClass

pytestmark = [pytest.mark.torch, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

SCRIPT: Final = Path(__file__).with_name("train.py")
STEPS: Final = 24
TROUBLE_AT: Final = 14
DEADLINE: Final = 120.0
CURE: Final = (
    "torch is not installed here: python3.11 -m venv /tmp/torch && /tmp/torch/bin/pip install torch numpy, "
    "then TORCH_PYTHON=/tmp/torch/bin/python"
)


@pytest.fixture(scope="module")
def python() -> str:
    """A python that has torch. One that was named and has none is an error, and no reason to skip."""
    named = os.environ.get("TORCH_PYTHON", "")
    if not named:
        if importlib.util.find_spec("torch") is None:
            pytest.skip(CURE)
        return sys.executable
    asked = subprocess.run([named, "-c", "import torch"], capture_output=True, text=True, check=False, timeout=DEADLINE)
    assert asked.returncode == 0, f"TORCH_PYTHON={named} has no torch: {asked.stderr}"
    return named


@dataclass
class Run:
    """One torchrun, and the folder of all that it leaves."""

    folder: Path
    process: asyncio.subprocess.Process

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @classmethod
    async def begin(cls, python: str, folder: Path, world: int, *words: object) -> "Run":
        for part in ("checkpoints", "logs"):
            (folder / part).mkdir(parents=True)
        torchrun = [python, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
        ranks = ["--nproc-per-node", world, "--log-dir", folder / "logs", "--redirects", 3]
        script = [SCRIPT, "--checkpoints", folder / "checkpoints", "--steps", STEPS, "--save-every", 4, *words]
        with (folder / "logs" / "launcher.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *map(str, (*torchrun, *ranks, *script)),
                stdout=log,
                stderr=log,
                env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )
        return cls(folder, process)

    async def ended(self) -> int:
        """Its exit code; whatever it leaves running is killed."""
        try:
            async with asyncio.timeout(DEADLINE):
                return await self.process.wait()
        finally:
            self.kill()

    async def digest(self) -> str:
        """The checksum of the final weights and of the optimizer's state."""
        assert await self.ended() == 0, (self.folder / "logs" / "launcher.log").read_text()
        return (self.checkpoints / "digest").read_text()

    async def standing(self) -> int:
        """The process of the rank that was told to stand still, once it does."""
        try:
            async with asyncio.timeout(DEADLINE):
                while not (told := self.checkpoints / "standing").exists() or not told.read_text():
                    assert self.process.returncode is None, (self.folder / "logs" / "launcher.log").read_text()
                    await asyncio.sleep(0.02)
        except BaseException:
            self.kill()
            raise
        return int(told.read_text())

    def kill(self) -> None:
        if self.process.returncode is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def evidence(self) -> Evidence:
        """What `sickbay train classify` reads of the logs and error files."""
        logs = self.folder / "logs"
        names = [path.relative_to(logs).as_posix() for path in logs.rglob("*") if path.is_file()]
        return evidence_of_folder(names, lambda name: (logs / name).read_bytes())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def undisturbed(python: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a run that nobody disturbs ends with."""
    run = await Run.begin(python, tmp_path_factory.mktemp("undisturbed"), 2)
    return await run.digest()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def killed(python: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of two ranks that has lost one in the middle of a step."""
    folder = tmp_path_factory.mktemp("killed")
    trouble = ("--trouble", "stand", "--trouble-on", 1, "--trouble-at", TROUBLE_AT)
    run = await Run.begin(python, folder, 2, *trouble)
    os.kill(await run.standing(), signal.SIGKILL)
    assert await run.ended() == 1
    return run


async def chosen(folder: Path) -> ResumeChoice:
    """The checkpoint to resume from, as the training workflow has it chosen."""
    place = CheckpointPlace(url=folder.as_uri())
    listing = await CheckpointActivities().look(CheckpointQuery(place=place))
    assert listing.complete
    assert {each.format for each in listing.checkpoints} == {CheckpointFormat.DCP}
    return choose(listing, place, JobHistory(), allow_nothing=False)


def step_of(choice: ResumeChoice) -> int:
    assert choice.allowed, choice.why
    assert choice.checkpoint is not None
    assert choice.checkpoint.level is Level.VERIFIED
    return choice.checkpoint.step


async def test_the_newest_checkpoint_before_the_kill_is_whole_and_chosen(killed: Run) -> None:
    choice = await chosen(killed.checkpoints)
    assert step_of(choice) == 12
    assert choice.passed_over == ()


@pytest.mark.parametrize("part", ["__0_0.distcp", "__1_0.distcp", ".metadata"])
@pytest.mark.parametrize("left", [0.99, 0.5, 0.0, None])
async def test_a_newest_checkpoint_that_is_cut_anywhere_is_passed_over(
    killed: Run, tmp_path: Path, part: str, left: float | None
) -> None:
    shutil.copytree(killed.checkpoints, tmp_path / "cut")
    path = tmp_path / "cut" / "step-12" / part
    if left is None:
        path.unlink()
    else:
        os.truncate(path, int(path.stat().st_size * left))
    choice = await chosen(tmp_path / "cut")
    assert step_of(choice) == 8
    assert len(choice.passed_over) == 1
    assert part in choice.passed_over[0]


@pytest.mark.parametrize("world", [2, 1, 3])
async def test_a_resume_behind_a_cut_checkpoint_ends_bit_equal_on_any_number_of_ranks(
    python: str, killed: Run, undisturbed: str, tmp_path: Path, world: int
) -> None:
    shutil.copytree(killed.checkpoints, tmp_path / "cut")
    os.truncate(tmp_path / "cut" / "step-12" / "__1_0.distcp", 100)
    choice = await chosen(tmp_path / "cut")
    assert choice.checkpoint is not None
    path = choice.checkpoint.path.removeprefix("file://")
    run = await Run.begin(python, tmp_path / "resumed", world, "--resume", path)
    assert await run.digest() == undisturbed
    assert step_of(await chosen(run.checkpoints)) == STEPS


async def test_a_kill_is_read_of_the_launchers_words_since_nobody_writes_an_error_file_and_blames_nobody(
    killed: Run,
) -> None:
    evidence = killed.evidence()
    assert {rank.rank: rank.exit_code for rank in evidence.ranks if rank.rank is not None} == {0: 143, 1: 137}
    assert evidence.last_step == TROUBLE_AT
    verdict = classify(evidence)
    assert (verdict.rule, verdict.action) == ("row-30-died", FailureAction.RESTART)
    assert verdict.blamed == ()


async def test_the_error_file_of_the_rank_that_raised_tells_why_and_who(python: str, tmp_path: Path) -> None:
    trouble = ("--trouble", "raise", "--trouble-on", 1, "--trouble-at", TROUBLE_AT)
    run = await Run.begin(python, tmp_path / "raised", 2, *trouble)
    assert await run.ended() == 1
    evidence = run.evidence()
    (raised,) = [rank for rank in evidence.ranks if rank.rank == 1]
    assert raised.error is not None
    assert raised.error.exception == "ValueError"
    verdict = classify(evidence)
    assert verdict.failure_class is FailureClass.APPLICATION
    assert verdict.culprits == ("rank 1 (localhost)",)
    assert any("the labels of shard 3 are no labels" in line for line in verdict.evidence)
