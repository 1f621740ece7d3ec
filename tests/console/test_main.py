import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from console.errors import UserError
from console.main import COMMANDS, LazyCommand, run

PROGRAM = Path(sys.executable).parent / "sickbay"
HEAVY = ("temporalio", "kubernetes", "boto3", "rich")


def test_the_help_text_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, (_, summary) in COMMANDS.items():
        assert f"  {name} " in shown
        assert summary in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_is_listed_is_there_and_explains_itself(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([name, "--help"]) == 0
    assert f"Usage: sickbay {name}" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--help"], ["diagnose", "/dev/null"]])
def test_quick_commands_do_not_wait_for_the_clients_of_others(arguments: list[str]) -> None:
    look = f"from console.main import run; run({arguments!r}); import sys; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=60, check=True)
    assert not set(HEAVY) & set(done.stdout.splitlines())


def test_a_users_error_is_one_line_and_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(self: LazyCommand) -> object:
        raise UserError("file x: line 3: no such pool; did you mean p5?", 7)

    monkeypatch.setattr(LazyCommand, "load", fail)
    assert run(["node"]) == 7
    assert capsys.readouterr().err == "sickbay: file x: line 3: no such pool; did you mean p5?\n"


def test_an_unknown_command_is_refused_with_what_is_near(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["incident"]) == 2
    assert "Did you mean 'incidents'" in capsys.readouterr().err


def test_the_program_ends_with_the_code_of_its_command() -> None:
    done = subprocess.run([PROGRAM, "nothing"], capture_output=True, timeout=60, check=False)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr


def test_a_reader_that_leaves_early_is_no_error() -> None:
    piped = f"{PROGRAM} --help | true"
    done = subprocess.run(["/bin/sh", "-c", piped], capture_output=True, timeout=60, check=True)
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("ending", "code", "told"),
    [
        ("> /dev/full", 2, b"sickbay: the output cannot be written: no space is left; print it elsewhere\n"),
        (">&-", 1, b""),
        ("> /dev/null 2>&-", 1, b""),
        ("> /dev/null <&-", 1, b""),
    ],
)
def test_output_that_cannot_be_written_is_no_stack_trace(tmp_path: Path, ending: str, code: int, told: bytes) -> None:
    log = tmp_path / "kernel.log"
    log.write_text("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n")
    typed = f"{PROGRAM} diagnose {log} {ending}"
    done = subprocess.run(["/bin/sh", "-c", typed], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (code, told)


def test_a_closed_standard_input_is_an_empty_one() -> None:
    done = subprocess.run(["/bin/sh", "-c", f"{PROGRAM} diagnose - <&-"], capture_output=True, timeout=60, check=False)
    assert b"Traceback" not in done.stderr


def test_what_the_output_cannot_encode_is_printed_as_an_escape(tmp_path: Path) -> None:
    log = tmp_path / "kernel.log"
    log.write_text("NVRM: Xid (PCI:0000:3b:00): 79, name=é, GPU has fallen off the bus.\n", encoding="utf-8")
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([PROGRAM, "diagnose", log], capture_output=True, timeout=60, check=False, env=ascii_only)
    assert done.stderr == b""
    assert rb"name=\xe9" in done.stdout


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"sickbay {version('sickbay')}\n"
