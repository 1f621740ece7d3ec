"""The kernel lines of simulated faults, as the parser reads them, and the record format of /dev/kmsg."""

from pathlib import Path

import pytest

from sickbay.diagnosis import diagnose
from sickbay.faults import Rung
from sickbay.kernel_log import scan
from simulator.host.gpu import RecoveryAction, identities
from simulator.host.gpu_models import GPU_MODELS
from simulator.host.kernel_lines import (
    TEMPLATES,
    Line,
    boot_lines,
    check_entry,
    first_xid_preamble,
    lines_of,
    recovery_action_changed,
)
from simulator.host.kernel_log import KernelLog, record

GPU = identities("i-0123456789abcdef0", 8)[3]
MODEL = GPU_MODELS["p5.48xlarge"]

RUNGS = {
    "xid-13": Rung.NONE,
    "xid-31": Rung.NONE,
    "xid-43": Rung.NONE,
    "xid-45": Rung.NONE,
    "xid-48": Rung.RESET_GPU,
    "xid-63": Rung.NONE,
    "xid-64": Rung.REPLACE,
    "xid-74": Rung.RESET_GPU,
    "xid-79": Rung.REBOOT,
    "xid-94": Rung.NONE,
    "xid-95": Rung.RESET_GPU,
    "xid-119": Rung.RESET_GPU,
    "gpu-lost-at-boot": Rung.REBOOT,
    "init-failed": Rung.REBOOT,
    "sxid-20034": Rung.REBOOT,
    "hung-task": Rung.REBOOT,
}
"""What the diagnosis makes of each template alone."""


def written(lines: list[Line]) -> list[bytes]:
    return [record(line, sequence, 1000 * sequence) for sequence, line in enumerate(lines)]


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_is_read_as_the_fault_it_is_named_for(name: str) -> None:
    faults = scan(written(first_xid_preamble(GPU) + lines_of([name], GPU, MODEL, pid=4001)))
    if "xid-" in name:
        assert faults[0].code == name
    if name.startswith(("xid-", "gpu-lost", "init-")):
        assert {fault.component.id for fault in faults} == {"0000:86:00"}
    assert diagnose(faults).rung is RUNGS[name]


def test_a_healthy_boot_shows_no_fault() -> None:
    assert scan(written(boot_lines("580.95.05"))) == ()


def test_a_changed_recovery_action_is_read_as_the_driver_s_verdict() -> None:
    line = recovery_action_changed(GPU, RecoveryAction.NONE, RecoveryAction.NODE_REBOOT)
    assert diagnose(scan(written([line]))).rung is Rung.REBOOT


def test_a_raw_line_is_written_as_it_stands() -> None:
    assert lines_of(["NVRM: {braces} stay"], GPU, MODEL, 1) == [Line("NVRM: {braces} stay")]


def test_an_unknown_template_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="'xid-999': use one of xid-13"):
        check_entry("xid-999")


def test_a_record_is_one_line_with_all_else_escaped_as_the_kernel_does() -> None:
    assert record(Line("one\ntwo\\ \xe9", 4), 7, 1500) == b"4,7,1500,-;one\\x0atwo\\x5c \\xc3\\xa9\n"


def test_a_boot_begins_a_new_file_and_leaves_a_reader_of_the_old_one_alone(tmp_path: Path) -> None:
    log = KernelLog(tmp_path / "kmsg")
    log.boot()
    log.write([Line("old")])
    with log.path.open("rb") as reader:
        log.boot()
        log.write([Line("new"), Line("newer")])
        assert reader.read().endswith(b";old\n")
    records = log.path.read_bytes().splitlines()
    assert [line.split(b",")[1] for line in records] == [b"0", b"1"]
    assert records[0].endswith(b";new")
