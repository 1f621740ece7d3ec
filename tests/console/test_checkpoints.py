"""`sickbay checkpoints` as people type it: JSON for programs, words for people, errors with place and cure."""

import json
from pathlib import Path
from typing import Any

import pytest

from console.main import run
from tests.sickbay.checkpoints.layouts import dcp, megatron, without


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def told(keyboard: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    run(["checkpoints", *words, "--json"])
    answer: dict[str, Any] = json.loads(keyboard.readouterr().out)
    return answer


@pytest.mark.parametrize("command", ["list", "verify"])
def test_programs_get_what_is_there_what_is_wrong_and_what_would_be_resumed(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, {**dcp(100), **without(dcp(200), ".metadata")})
    answer = told(capsys, command, str(tmp_path))
    assert set(answer) >= {"checkpoints", "resume", "why"}
    assert answer["resume"] == 100
    assert "step 100" in answer["why"]
    newest = answer["checkpoints"][0]
    assert set(newest) >= {"step", "path", "format", "level", "problems"}
    assert (newest["step"], newest["level"], newest["format"]) == (200, "listed", "dcp")
    assert newest["problems"] == [".metadata is missing: the save never ended"]


def test_nothing_that_can_be_resumed_is_null_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, without(dcp(100), ".metadata"))
    answer = told(capsys, "list", str(tmp_path))
    assert answer["resume"] is None
    assert "none can be used" in answer["why"]


def test_people_see_what_is_odd_of_the_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, {**megatron(100), "latest_checkpointed_iteration.txt": b""})
    assert run(["checkpoints", "list", str(tmp_path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "latest_checkpointed_iteration.txt is empty" in out


def test_a_place_that_cannot_be_read_is_an_error_with_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["checkpoints", "list", "/nonexistent/place/run"])
    words = capsys.readouterr()
    assert code != 0
    assert "/nonexistent/place" in words.out + words.err


def test_a_scheme_that_nobody_reads_is_told_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["checkpoints", "list", "gs://bucket/run"]) != 0
    words = capsys.readouterr()
    assert "s3://bucket/prefix" in words.out + words.err
