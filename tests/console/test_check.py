import json
import os
import subprocess
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from console.check import print_reports
from console.main import run
from console.recordings import LARGEST
from sickbay.checks import CheckResult
from sickbay.recorded.model import RecordedKind
from tests.sickbay.nvidia_smi.documents import A10G, pci, query_text, query_xml

Output = pytest.CaptureFixture[str]
PENDING = {1: {"pending": "Yes"}}


def write(folder: Path, text: str, name: str = "gpu.txt") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(("text", "code"), [(query_text(2), 0), (query_text(2, PENDING), 1), ("", 2), ("hello\n", 2)])
def test_the_exit_code_tells_healthy_faults_and_unknown(tmp_path: Path, text: str, code: int) -> None:
    assert run(["check", "--from", f"nvidia-smi={write(tmp_path, text)}"]) == code


def test_json_is_one_document_of_the_agreed_shape(tmp_path: Path, capsys: Output) -> None:
    assert run(["check", "--json", "--from", f"nvidia-smi={write(tmp_path, query_xml(2, PENDING))}"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"result", "checks"}
    (check,) = document["checks"]
    assert set(check) == {"name", "layer", "result", "why", "seconds", "faults"}
    assert (document["result"], check["name"], check["layer"], check["result"]) == (
        "faults",
        "nvidia-smi",
        "nvml",
        "faults",
    )
    (fault,) = check["faults"]
    assert set(fault) == {
        "code",
        "component",
        "class",
        "severity",
        "rung",
        "count",
        "first_seen",
        "last_seen",
        "evidence",
    }
    assert (fault["code"], fault["component"]) == ("row-remap-pending", {"kind": "gpu", "id": pci(1)})


def test_the_table_fits_a_terminal_and_the_words_of_each_fault_follow(tmp_path: Path, capsys: Output) -> None:
    file = write(
        tmp_path, query_text(2, PENDING), "a-rather-long-name-of-a-file-that-somebody-attached-to-a-ticket.txt"
    )
    cut = write(tmp_path, query_text(2)[:2000], "cut.txt")
    assert run(["check", "--from", f"nvidia-smi={file}", "--from", f"nvidia-smi={cut}"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0].split() == ["check", "layer", "result", "seconds", "what", "it", "says"]
    assert any(line.startswith(f"row-remap-pending  gpu {pci(1)}  ") for line in lines)
    assert lines[-1] == "result    faults"


def test_recordings_of_one_kind_are_told_apart_by_their_files(tmp_path: Path, capsys: Output) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    files = [write(folders[0], query_text(1), "a.txt"), write(folders[0], "", "b.txt"), write(folders[1], "", "b.txt")]
    run(["check", "--json", *(word for file in files for word in ("--from", f"nvidia-smi={file}"))])
    names = [check["name"] for check in json.loads(capsys.readouterr().out)["checks"]]
    assert names == ["nvidia-smi a.txt", f"nvidia-smi {files[1]}", f"nvidia-smi {files[2]}"]


def test_recordings_of_one_machine_inform_each_other(tmp_path: Path, capsys: Output) -> None:
    apart = {"name": A10G, "state": "N/A", "status": "N/A", "summary": "N/A"}
    whole = write(tmp_path, query_text(1, {0: apart}), "query.txt")
    empty = write(tmp_path, "", "links.txt")
    assert run(["check", "--from", f"nvidia-smi={empty}"]) == 2
    assert run(["check", "--from", f"nvidia-smi={empty}", "--from", f"nvidia-smi={whole}"]) == 0
    assert "not_applicable" in capsys.readouterr().out


def test_the_exit_code_of_the_recorded_command_counts(tmp_path: Path) -> None:
    file = write(tmp_path, query_text(2))
    assert run(["check", "--from", f"nvidia-smi:0={file}"]) == 0
    assert run(["check", "--from", f"nvidia-smi:9={file}"]) == 2


@pytest.mark.parametrize("kind", list(RecordedKind))
def test_every_kind_judges_a_text_that_is_none_of_its_own_as_unknown(
    tmp_path: Path, capsys: Output, kind: RecordedKind
) -> None:
    assert run(["check", "--json", "--from", f"{kind}={write(tmp_path, 'the quick brown fox')}"]) == 2
    (check,) = json.loads(capsys.readouterr().out)["checks"]
    assert check["result"] == "unknown"
    assert check["why"]


def test_standard_input_is_read_once(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(query_text(2).encode())))
    assert run(["check", "--from", "nvidia-smi=-"]) == 0
    assert run(["check", "--from", "nvidia-smi=-", "--from", "exporter=-"]) == 2
    assert "can be read once" in capsys.readouterr().err


def refused(arguments: list[str], capsys: Output) -> str:
    """The one line that tells what is wrong."""
    assert run(["check", *arguments]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert line.startswith("sickbay: ")
    return line


def test_what_is_wrong_with_a_word_or_a_file_is_one_clear_line(tmp_path: Path, capsys: Output) -> None:
    file = write(tmp_path, query_text(1))
    binary = tmp_path / "core"
    binary.write_bytes(bytes(range(256)) * 8)
    huge = tmp_path / "huge"
    huge.touch()
    os.truncate(huge, LARGEST + 1)
    assert "write KIND=FILE" in refused(["--from", "nvidia-smi"], capsys)
    assert "write KIND=FILE" in refused(["--from", "nvidia-smi="], capsys)
    assert "no kind is called 'smi'; there are dcgmi-diag" in refused(["--from", f"smi={file}"], capsys)
    assert "no exit code" in refused(["--from", f"nvidia-smi:x={file}"], capsys)
    assert "no exit code" in refused(["--from", f"nvidia-smi:256={file}"], capsys)
    assert "No such file" in refused(["--from", f"nvidia-smi={tmp_path / 'none'}"], capsys)
    assert "Is a directory" in refused(["--from", f"nvidia-smi={tmp_path}"], capsys)
    assert "is a device" in refused(["--from", "nvidia-smi=/dev/zero"], capsys)
    assert "is binary" in refused(["--from", f"nvidia-smi={binary}"], capsys)
    assert "larger than 64 MiB" in refused(["--from", f"nvidia-smi={huge}"], capsys)
    assert "leave out --layer" in refused(["--layer", "host", "--from", f"nvidia-smi={file}"], capsys)
    assert "leave out --layer" in refused(["--active", "--from", f"nvidia-smi={file}"], capsys)


def test_a_terminal_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO()))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert "the keyboard" in refused(["--from", "nvidia-smi=-"], capsys)


def test_a_setting_that_cannot_work_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    monkeypatch.setenv("SICKBAY_EXPECTED_GPUS", "many")
    assert "SICKBAY_EXPECTED_GPUS" in refused(["--layer", "host"], capsys)


def test_no_escape_codes_of_a_recording_reach_the_terminal(tmp_path: Path, capsys: Output) -> None:
    text = "Unable to determine the device handle for GPU 0000:9A:00.0: \x1b]0;owned\x07 GPU is lost\n"
    assert run(["check", "--from", f"nvidia-smi={write(tmp_path, text)}"]) == 1
    output = capsys.readouterr().out
    assert "gpu-lost" in output
    assert "\x1b" not in output
    assert "\x07" not in output


@pytest.mark.parametrize("name", ["kernel-log", "nvml", *RecordedKind])
def test_a_check_and_a_kind_are_explained(capsys: Output, name: str) -> None:
    assert run(["check", "--explain", name]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{name}  ")
    assert {"judges", "looks", "source"} <= {line.split()[0] for line in lines[1:]}
    assert max(map(len, lines)) <= 100


def test_a_name_that_there_is_not_lists_those_that_there_are(capsys: Output) -> None:
    line = refused(["--explain", "everything"], capsys)
    assert "kernel-log" in line
    assert "fabric-manager" in line


def test_this_machine_is_judged_without_rights_cluster_or_gpu(capsys: Output) -> None:
    code = run(["check", "--json", "--layer", "host", "--layer", "network"])
    document = json.loads(capsys.readouterr().out)
    assert {check["layer"] for check in document["checks"]} == {"host", "network"}
    assert code == {"healthy": 0, "faults": 1, "unknown": 2}[document["result"]]


def test_a_layer_that_only_the_controller_asks_is_one_clear_line(capsys: Output) -> None:
    assert "no check of this layer" in refused(["--layer", "cloud"], capsys)


def test_where_nothing_applies_nothing_is_called_healthy(capsys: Output) -> None:
    assert print_reports((), in_json=False) == 2
    assert f"result    {CheckResult.UNKNOWN}" in capsys.readouterr().out


def test_nothing_of_the_cluster_is_imported() -> None:
    program = "import console.check, sys; print({'temporalio', 'kubernetes', 'boto3', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "set()"
