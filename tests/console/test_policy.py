"""`sickbay policy` as people type it."""

from pathlib import Path

import pytest

from console.main import run
from sickbay.policy.file import default_text


@pytest.fixture
def policy_file(tmp_path: Path) -> Path:
    file = tmp_path / "policy.yaml"
    file.write_bytes(default_text())
    return file


def test_the_shipped_policy_is_right(policy_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "check", str(policy_file)]) == 0
    assert f"{policy_file}: policy default-1" in capsys.readouterr().out


def test_every_problem_stands_on_a_line_of_its_own(policy_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy_file.write_text("version: a\ndefaults:\n  soak: 15\n  reboot: {attempts: none}\n")
    assert run(["policy", "check", str(policy_file)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"{policy_file}:3: defaults.soak: '15' has no unit")
    assert lines[1].startswith(f"{policy_file}:4: defaults.reboot.attempts: 'none' must be")
    assert lines[2] == f"{policy_file}: 2 problem(s)"


@pytest.mark.parametrize("command", [["check"], ["explain", "--fault", "xid-79"]])
def test_a_file_that_cannot_be_read_is_one_clear_line(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["policy", *command, str(tmp_path / "none.yaml")]) == 2
    assert capsys.readouterr().err.strip() == (
        f"sickbay: cannot read policy file {tmp_path / 'none.yaml'}: No such file or directory; "
        "name a file that you may read"
    )


def test_explain_prints_the_ladder(policy_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "explain", str(policy_file), "--fault", "XID-79", "--pool", "p5"]) == 0
    assert "1. reboot" in capsys.readouterr().out


def test_explain_of_a_wrong_file_tells_what_is_wrong(policy_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy_file.write_text("version: a\nx: y\n")
    assert run(["policy", "explain", str(policy_file), "--fault", "xid-79"]) == 1
    assert ":2: x: is not a section" in capsys.readouterr().err
