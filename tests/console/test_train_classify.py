"""Classification without a cluster, as people type it: a log, a folder of one attempt, and what cannot be read."""

import json
from pathlib import Path
from typing import Any

import pytest

from console.main import run

ECC = "[rank1]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
KILLED = (
    "W1101 12:00:00.000000 1 torch/elastic/agent/server/api.py:1] Received 15 death signal, shutting down workers\n"
)


def pod(name: str, node: str, code: int) -> dict[str, Any]:
    ended = {"exitCode": code, "reason": "Error", "finishedAt": "2026-11-01T12:00:00Z"}
    return {
        "metadata": {"name": name, "labels": {"batch.kubernetes.io/job-completion-index": name[-1]}},
        "spec": {"nodeName": node},
        "status": {"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"terminated": ended}}]},
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two pods, the second of which lost a GPU."""
    pods = {"kind": "List", "items": [pod("run-0", "node-a", 143), pod("run-1", "node-b", 1)]}
    (tmp_path / "pods.json").write_text(json.dumps(pods))
    (tmp_path / "run-0.log").write_text(KILLED)
    (tmp_path / "run-1.log").write_text(ECC)
    return tmp_path


def classified(path: Path, keyboard: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run(["train", "classify", str(path), "--json"]) == 0
    told: dict[str, Any] = json.loads(keyboard.readouterr().out)
    assert set(told) == {"class", "action", "rule", "reason", "culprits", "evidence"}
    return told


def test_a_folder_names_the_node_whose_rank_told_of_its_hardware(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = classified(folder, capsys)
    assert (told["class"], told["action"]) == ("platform", "restart_excluding_node")
    assert "node-b" in told["culprits"]
    assert not any("node-a" in each for each in told["culprits"])


def test_one_log_with_parts_of_ranks_is_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "all.log"
    log.write_text(f"### rank 0 (nodeA)\n{KILLED}### rank 1 (nodeB)\n{ECC}")
    assert "nodeB" in classified(log, capsys)["culprits"]


def test_faults_of_nodes_in_the_folder_count(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "run-1.log").write_text("nothing\n")
    line = "[ 1234.567890] NVRM: Xid (PCI:0000:53:00): 79, pid=1, name=python, GPU has fallen off the bus.\n"
    (folder / "node-b.dmesg").write_text(line)
    told = classified(folder, capsys)
    assert (told["class"], told["culprits"]) == ("platform", ["node-b"])


def test_what_cannot_be_read_is_told_as_missing_and_decides_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "faults.json").write_text('{"node-a": [{"code": 7}]}')
    (folder / "run-0.log").unlink()
    assert run(["train", "classify", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "faults.json: faults of node-a cannot be read" in out
    assert "log of pod run-0: not in the folder" in out


def test_words_of_a_log_command_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "evil.log"
    log.write_text("ValueError: \x1b]0;owned\x07\x1b[2J\n")
    assert run(["train", "classify", str(log)]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_nothing_to_read_is_one_line_with_the_cure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "classify", str(tmp_path)]) == 2
    assert "holds no file" in capsys.readouterr().err
    assert run(["train", "classify", str(tmp_path / "absent")]) == 2
    assert "cannot read" in capsys.readouterr().err
