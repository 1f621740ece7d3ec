"""Reading files of a host in real children: files that hang, folders that are not there, output that is cut."""

import os
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from health import files
from health.children import ChildResult, leaked_children
from health.files import FileCheck, HostFiles, read_answer, read_files
from sickbay.checks import CheckAbout, CheckCost, CheckLayer, CheckOutcome, CheckResult, healthy, not_applicable
from sickbay.faults import ComponentKind
from sickbay.file_readings import HANGS, FileReadings, Wanted
from tests.sickbay.network.moments import moment

SOON = timedelta(seconds=20)
AT_ONCE = timedelta(seconds=1)

PORTS = Wanted(files=("/sys/ports/*/state",), listings=("/sys/ports",), links=("/sys/ports/*/device",))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("a", "b", "c"):
        folder = tmp_path / "sys/ports" / name
        folder.mkdir(parents=True)
        (folder / "state").write_text("4: ACTIVE\n")
    (tmp_path / "sys/ports/a/device").symlink_to("../../0000:10:00.0")
    return tmp_path


def hang(root: Path, name: str) -> str:
    """Let a file be one that nobody ever answers for."""
    path = root / "sys/ports" / name / "state"
    path.unlink()
    os.mkfifo(path)
    return f"/sys/ports/{name}/state"


def test_texts_listings_and_links_are_told_by_the_host_s_paths(root: Path) -> None:
    readings = read_files(root, PORTS, SOON)
    assert readings.texts == {f"/sys/ports/{name}/state": "4: ACTIVE" for name in "abc"}
    assert readings.names["/sys/ports"] == ("a", "b", "c")
    assert readings.links == {"/sys/ports/a/device": "../../0000:10:00.0"}
    assert readings.silent == ""
    assert readings.trouble(PORTS) == ""


def test_what_is_not_there_is_proven_absent_and_no_trouble(root: Path) -> None:
    wanted = Wanted(files=("/sys/other/*/state", "/sys/ports/d/state"))
    readings = read_files(root, wanted, SOON)
    assert readings.absent("/sys/other")
    assert readings.absent("/sys/other/x/state")
    assert readings.absent("/sys/ports/d/state")
    assert not readings.absent("/sys/ports/a/state")
    assert readings.trouble(wanted) == ""


def test_what_may_not_be_read_is_trouble_with_its_cure() -> None:
    readings = FileReadings(failed={"/sys/ports/a/state": "EACCES"}, walked=frozenset(PORTS.patterns))
    assert not readings.absent("/sys/ports/a/state")
    assert "run the agent as root" in readings.trouble(PORTS)


def test_one_look_keeps_what_was_read_before_the_file_that_hangs(root: Path) -> None:
    hang(root, "b")
    readings = read_files(root, PORTS, AT_ONCE)
    assert readings.texts == {"/sys/ports/a/state": "4: ACTIVE"}
    assert readings.silent == "no answer in time"
    assert "was not read" in readings.trouble(PORTS)


def test_files_that_hang_cost_themselves_and_no_others(root: Path) -> None:
    hung = {hang(root, "a"), hang(root, "b")}
    look = HostFiles(root, PORTS, AT_ONCE).look()
    assert set(look.texts) == {"/sys/ports/c/state"}
    assert {path for path, error in look.failed.items() if error == HANGS} == hung
    assert "hangs" in look.trouble(PORTS)
    assert leaked_children() == 0


def test_a_file_that_hung_is_left_out_of_later_looks(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = hang(root, "b")
    host = HostFiles(root, PORTS, AT_ONCE)
    host.look()
    monkeypatch.setattr(files, "_SHARED_FOR", -1.0)
    monkeypatch.setattr(files, "_MAX_CHILDREN", 1)
    second = host.look()
    assert second.failed[path] == HANGS
    assert second.silent == ""


def test_checks_of_the_same_minute_share_one_look(root: Path) -> None:
    host = HostFiles(root, PORTS, SOON)
    first = host.look()
    (root / "sys/ports/a/state").write_text("1: DOWN\n")
    assert host.look() is first


def test_a_file_that_hung_is_tried_again_unless_children_still_hang(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = hang(root, "b")
    host = HostFiles(root, PORTS, AT_ONCE)
    host.look()
    (root / path[1:]).unlink()
    (root / path[1:]).write_text("4: ACTIVE")
    monkeypatch.setattr(files, "_SHARED_FOR", -1.0)
    monkeypatch.setattr(files, "_SKIPPED_FOR", -1.0)
    monkeypatch.setattr(files, "leaked_children", lambda: 1)
    assert host.look().failed[path] == HANGS
    monkeypatch.setattr(files, "leaked_children", lambda: 0)
    assert host.look().texts[path] == "4: ACTIVE"


def test_nothing_is_read_any_more_where_too_many_files_hang(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hang(root, "a")
    monkeypatch.setattr(files, "_MAX_HUNG", 1)
    look = HostFiles(root, PORTS, AT_ONCE).look()
    assert not look.texts
    assert look.trouble(PORTS)


def test_long_files_are_cut_and_odd_bytes_replaced(root: Path) -> None:
    (root / "sys/ports/a/state").write_bytes(b"\xff" * (1 << 19))
    text = read_files(root, PORTS, SOON).texts["/sys/ports/a/state"]
    assert len(text) == 1 << 18


def test_processes_are_counted_and_told_by_name_and_state(tmp_path: Path) -> None:
    for pid, name, state in ((1, "systemd", "S"), (2, "odd ) name", "D"), (3, "gone", "Z"), (4, "kthreadd", "S")):
        folder = tmp_path / "proc" / str(pid)
        folder.mkdir(parents=True)
        (folder / "stat").write_text(f"{pid} ({name}) {state} 0 {' '.join(['0'] * 17)} {pid}00 0\n")
        (folder / "wchan").write_text("rm_wait")
        (folder / "status").write_text("Name:\todd\nvoluntary_ctxt_switches:\t40\nnonvoluntary_ctxt_switches:\t2\n")
    (tmp_path / "proc/5").mkdir()
    readings = read_files(tmp_path, Wanted(processes=True, process_names=("kthreadd",)), SOON)
    told = {process.name: process for process in readings.processes}
    assert set(told) == {"odd ) name", "kthreadd"}
    assert (told["odd ) name"].waits_in, told["odd ) name"].started) == ("rm_wait", 200)
    assert (told["odd ) name"].switches, told["kthreadd"].switches) == (42, None)
    assert readings.process_count is not None
    assert (readings.process_count.total, readings.process_count.zombies) == (4, 1)


def test_the_space_of_a_file_system_is_told(root: Path) -> None:
    space = read_files(root, Wanted(spaces=("/sys",)), SOON).spaces["/sys"]
    assert space.size >= space.free > 0


@given(
    some.text(max_size=200),
    some.lists(some.sampled_from(['{"at": "/a"}', '{"text": "1"}', '{"end": true}', "{", "[]"])),
)
def test_any_output_of_a_child_is_read_and_only_its_end_is_an_end(noise: str, lines: list[str]) -> None:
    readings, _ = read_answer(ChildResult(0, "\n".join((*lines, noise)), ""))
    assert (readings.silent == "") is ('{"end": true}' in lines)


def check(root: Path, outcome: CheckOutcome) -> FileCheck:
    about = CheckAbout(
        name="ports",
        layer=CheckLayer.NETWORK,
        judges=(ComponentKind.NIC,),
        cost=CheckCost.FREE,
        looks_at="",
        source="",
        every=SOON,
        deadline=SOON,
        fresh_for=SOON,
    )
    host = HostFiles(root, PORTS, AT_ONCE)
    return FileCheck(about=about, wanted=PORTS, files=host, applicable=lambda _: "", rule=lambda *_: outcome)


@pytest.mark.parametrize("outcome", [healthy("all is well", memory="m"), not_applicable("no such part")])
def test_a_rule_s_good_word_does_not_count_where_files_hang(root: Path, outcome: CheckOutcome) -> None:
    assert check(root, outcome).run(moment()).result is outcome.result
    path = hang(root, "b")
    doubted = check(root, outcome).run(moment())
    assert (doubted.result, doubted.memory) == (CheckResult.UNKNOWN, outcome.memory)
    assert path in doubted.why


def test_the_child_reads_its_own_host_too() -> None:
    readings = read_files(Path("/"), Wanted(files=("/proc/sys/kernel/ostype",)), SOON)
    assert readings.texts == {"/proc/sys/kernel/ostype": "Linux"}
