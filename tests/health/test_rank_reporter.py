import ast
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from health import rank_reporter
from health.rank_reporter import Reporter
from sickbay.ranks.model import StepReport
from tests.eventually import eventually

SOURCE = Path(rank_reporter.__file__)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The attempt's folder, which does not exist yet; the environment names it."""
    monkeypatch.setenv("SICKBAY_JOB", "ml/llama")
    monkeypatch.setenv("SICKBAY_ATTEMPT", "2")
    monkeypatch.setenv("SICKBAY_RANK_DIR", str(tmp_path))
    for name in ("RANK", "JOB_COMPLETION_INDEX"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "ml_llama" / "2"


def reports(path: Path) -> list[StepReport]:
    return [StepReport.model_validate_json(line) for line in path.read_text().splitlines() if line]


def test_each_step_is_one_line_as_the_collector_reads_it(folder: Path) -> None:
    reporter = Reporter.from_environment(rank=3, role="critic", pipeline_stage=1, gpu_uuid="GPU-3")
    reporter.step(10, compute_ms=80.5, collective_ms=12, data_ms=3, restore_ms=900, tokens=4096)
    reporter.step(11, compute_ms=81, checkpoint_ms=500)
    reporter.close(10)
    first, second = reports(folder / "rank-3.jsonl")
    assert (first.job, first.attempt, first.step, first.compute_ms, first.tokens) == ("ml/llama", 2, 10, 80.5, 4096)
    assert (first.place.rank, first.place.role, first.place.pipeline_stage) == (3, "critic", 1)
    assert second.so_far is not None
    assert (second.so_far.first_step, second.so_far.checkpoint_ms, second.so_far.restore_ms) == (10, 500, 900)


def test_timed_blocks_are_added_to_their_step_alone(folder: Path) -> None:
    reporter = Reporter.from_environment(rank=0)
    with reporter.timed("data"):
        sum(range(1000))
    with reporter.timed("something else"):
        pass
    reporter.step(1, data_ms=1000)
    reporter.step(2)
    reporter.close(10)
    first, second = reports(folder / "rank-0.jsonl")
    assert first.data_ms > 1000
    assert second.data_ms == 0


@pytest.mark.parametrize(("variable", "rank"), [("RANK", 7), ("JOB_COMPLETION_INDEX", 5)])
def test_the_rank_comes_from_the_launcher_or_the_pod(
    folder: Path, monkeypatch: pytest.MonkeyPatch, variable: str, rank: int
) -> None:
    monkeypatch.setenv(variable, str(rank))
    reporter = Reporter.from_environment()
    reporter.step(1)
    reporter.close(10)
    assert (folder / f"rank-{rank}.jsonl").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SICKBAY_RANK_DIR", ""),
        ("SICKBAY_JOB", ""),
        ("SICKBAY_JOB", "../../etc"),
        ("SICKBAY_JOB", "a/b/c"),
        ("SICKBAY_ATTEMPT", "two"),
        ("SICKBAY_ATTEMPT", "0"),
    ],
)
def test_a_process_that_belongs_to_no_job_reports_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    reporter = Reporter.from_environment(rank=1)
    with reporter.timed("compute"):
        reporter.step(1, compute_ms=5)
    reporter.checkpoint_done(1)
    reporter.close()
    assert not reporter.checkpoint_requested()
    assert list(tmp_path.iterdir()) == []


def test_a_request_to_checkpoint_is_seen_until_it_is_done_and_a_new_one_is_seen_again(folder: Path) -> None:
    reporter = Reporter.from_environment(rank=1)
    assert not reporter.checkpoint_requested()
    folder.mkdir(parents=True)
    request = folder / "checkpoint-now"
    request.write_text("incident-1\n")
    assert reporter.checkpoint_requested()
    reporter.checkpoint_done(50)
    assert not reporter.checkpoint_requested()
    request.write_text("incident-2\n")
    assert reporter.checkpoint_requested()
    request.unlink()
    assert not reporter.checkpoint_requested()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e300, "many", None])
def test_numbers_that_are_none_neither_raise_nor_spoil_the_file(
    folder: Path, capfd: pytest.CaptureFixture[str], value: float
) -> None:
    reporter = Reporter.from_environment(rank=1)
    reporter.step(1, compute_ms=value, tokens=value)
    reporter.step(2)
    reporter.close(10)
    assert [report.step for report in reports(folder / "rank-1.jsonl")][-1] == 2


def test_a_file_that_is_full_is_set_aside_and_one_old_one_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_reporter, "ROTATE_BYTES", 2000)
    reporter = Reporter.from_environment(rank=1)
    for step in range(50):
        reporter.step(step)
        reporter.close(10)
    assert sorted(path.name for path in folder.iterdir()) == ["rank-1.jsonl", "rank-1.jsonl.old"]
    assert all(path.stat().st_size < 2500 for path in folder.iterdir())
    assert reports(folder / "rank-1.jsonl")[-1].step == 49


async def test_a_folder_that_cannot_be_written_costs_one_warning_and_is_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rank_reporter, "RETRY_SECONDS", 0.01)
    folder.parent.write_text("a file where the job's folder should be")
    reporter = Reporter.from_environment(rank=1)
    for step in range(20):
        reporter.step(step)
        reporter.close(0.05)
    folder.parent.unlink()

    def again() -> bool:
        reporter.step(99)
        reporter.close(10)
        return (folder / "rank-1.jsonl").exists()

    await eventually(again)
    assert reports(folder / "rank-1.jsonl")[-1].step == 99
    assert capfd.readouterr().err.count("steps are not reported") == 1


def test_a_disk_that_hangs_holds_no_step_up_and_memory_stays_bounded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = threading.Event()
    real = os.makedirs
    monkeypatch.setattr(rank_reporter, "WAITING_LINES", 100)
    monkeypatch.setattr(os, "makedirs", lambda *words, **more: (hangs.wait(30), real(*words, **more)))
    reporter = Reporter.from_environment(rank=1)
    for step in range(1000):
        reporter.step(step)
    hangs.set()
    reporter.close(10)
    steps = [report.step for report in reports(folder / "rank-1.jsonl")]
    assert steps[-1] == 999
    assert len(steps) < 1000


def test_a_forked_process_goes_on_reporting(folder: Path) -> None:
    script = (
        "import os, sys; from rank_reporter import Reporter; reporter = Reporter.from_environment(rank=4)\n"
        "reporter.step(1); reporter.close(10); child = os.fork()\n"
        "if child == 0:\n"
        "    reporter.step(2); reporter.close(10); os._exit(0)\n"
        "os.waitpid(child, 0); reporter.step(3)\n"
    )
    run(script)
    assert [report.step for report in reports(folder / "rank-4.jsonl")] == [1, 2, 3]


def test_the_file_alone_reports_from_a_bare_interpreter_to_the_last_step(folder: Path) -> None:
    run("from rank_reporter import Reporter\nReporter.from_environment(rank=4).step(1, compute_ms=5)\n")
    assert [report.step for report in reports(folder / "rank-4.jsonl")] == [1]


def run(script: str) -> None:
    """A script beside a copy of the reporter, with no package of anybody."""
    words = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(SOURCE.parent)!r})\n{script}"]
    subprocess.run(words, check=True, timeout=60)


def test_the_reporter_needs_nothing_and_can_be_read_by_python_3_8() -> None:
    tree = ast.parse(SOURCE.read_text(), feature_version=(3, 8))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert imported <= set(sys.stdlib_module_names)
    assert json.loads(json.dumps(rank_reporter._PARTS)) == ["compute", "collective", "data", "checkpoint", "restore"]
