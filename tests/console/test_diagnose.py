import json
import subprocess
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from console.diagnose import KMSG_DEVICE, diagnose_command
from console.errors import UserError
from console.main import run

LOST = "[  100.500000] NVRM: Xid (PCI:0000:3B:00): 79, pid=7, name=train, GPU has fallen off the bus.\n"
CRASHED = "[  100.500000] NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=train, MMU Fault\n"


def write(folder: Path, text: str) -> str:
    path = folder / "kernel.log"
    path.write_text(text, encoding="utf-8")
    return str(path)


def pipe(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(data)))


@pytest.mark.parametrize(("text", "code"), [(LOST, 1), (CRASHED, 0), ("all is well\n", 0), ("", 0)])
def test_the_exit_code_tells_whether_there_is_something_to_do(tmp_path: Path, text: str, code: int) -> None:
    assert run(["diagnose", write(tmp_path, text)]) == code


def test_json_holds_the_verdict_and_every_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", "--format", "json", write(tmp_path, LOST)]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == {
        "class": "gpu",
        "rung": "reboot",
        "components": [{"kind": "gpu", "id": "0000:3b:00"}],
        "reason": "xid-79 on gpu 0000:3b:00: the GPU is gone from the PCIe bus",
    }
    assert report["faults"] == [
        {
            "code": "xid-79",
            "component": {"kind": "gpu", "id": "0000:3b:00"},
            "class": "gpu",
            "severity": "fatal",
            "rung": "reboot",
            "count": 1,
            "first_seen": 100.5,
            "last_seen": 100.5,
            "evidence": [LOST.rstrip("\n")],
        }
    ]


def test_wall_clock_moments_are_iso_8601_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["diagnose", "--format", "json", write(tmp_path, LOST.replace("[  100.500000]", "[Wed Jul 31 23:14:18 2024]"))])
    assert json.loads(capsys.readouterr().out)["faults"][0]["first_seen"] == "2024-07-31T23:14:18Z"


def test_text_tells_what_to_do_first_and_shows_the_evidence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["diagnose", write(tmp_path, CRASHED + LOST)])
    text = capsys.readouterr().out
    assert "do first  reboot" in text
    assert text.index("xid-79  gpu") < text.index("xid-31  gpu")
    assert LOST.strip() in text


def test_text_tells_a_human_of_codes_that_the_catalogue_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["diagnose", write(tmp_path, CRASHED.replace("31", "31337"))]) == 0
    assert "for a human to look up: xid-31337" in capsys.readouterr().out


def test_text_passes_no_escape_codes_of_the_log_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["diagnose", write(tmp_path, CRASHED.replace("train", "\x1b[31mtrain"))])
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["diagnose", "-"], ["diagnose"]])
def test_a_pipe_is_read(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    pipe(monkeypatch, LOST.encode())
    assert run(arguments) == 1


def test_a_missing_file_is_one_clear_line_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "none.log")
    assert run(["diagnose", missing]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == f"sickbay: cannot read {missing}: No such file or directory\n"


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Is a directory"):
        diagnose_command(str(tmp_path), "text")


def test_binary_input_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "core"
    path.write_bytes(bytes(range(256)) * 16)
    with pytest.raises(UserError, match="is binary"):
        diagnose_command(str(path), "text")
    pipe(monkeypatch, bytes(range(256)))
    with pytest.raises(UserError, match="standard input is binary"):
        diagnose_command("-", "json")


def test_a_terminal_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, b"")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    with pytest.raises(UserError, match="name a FILE"):
        diagnose_command("-", "text")


def test_an_empty_log_is_told_to_prove_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe(monkeypatch, b"")
    assert run(["diagnose"]) == 0
    assert "standard input is empty, which proves nothing" in capsys.readouterr().err


def test_the_kernels_own_device_is_not_followed_for_ever(capsys: pytest.CaptureFixture[str]) -> None:
    device = Path("/dev/kmsg")
    if not (device.is_char_device() and device.stat().st_rdev == KMSG_DEVICE):
        pytest.skip("this machine has no /dev/kmsg")
    assert run(["diagnose", str(device)]) == 2
    assert "dmesg --raw | sickbay diagnose -" in capsys.readouterr().err


def test_an_unknown_format_is_a_usage_error(tmp_path: Path) -> None:
    assert run(["diagnose", "--format", "xml", write(tmp_path, LOST)]) == 2


def test_nothing_of_the_cluster_is_imported() -> None:
    program = "import console.diagnose, sys; print({'temporalio', 'kubernetes', 'boto3', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "set()"
