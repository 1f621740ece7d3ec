"""One pass on this machine, whatever it is, and on files of the test's own."""

from pathlib import Path

import pytest

from health import one_pass as one_pass_module
from health.one_pass import all_checks, one_pass
from health.settings import LookSettings
from sickbay.checks import ActiveDepth, CheckCost, CheckLayer, CheckReport, CheckResult

from .records import ACTION_RESET, XID_79, KernelLogFile
from .stand_in_checks import AT_ONCE, Hanging, Told, about


def look_at_log(path: Path) -> CheckReport:
    settings = LookSettings(kmsg_path=path)
    (report,) = one_pass(settings, frozenset({CheckLayer.KERNEL_LOG}), ActiveDepth.NONE)
    return report


def test_every_check_has_one_name_and_a_report_in_the_order_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = (Told(about("disks")), Told(about("active", cost=CheckCost.EXCLUSIVE)), Told(about("clock")))
    monkeypatch.setattr(one_pass_module, "checks", lambda settings: chosen)
    settings = LookSettings()
    names = [described.name for described in all_checks(settings)]
    assert names == ["kernel-log", "disks", "active", "clock"]
    reports = one_pass(settings, frozenset(), ActiveDepth.NONE)
    assert [report.name for report in reports] == names
    assert reports[2].result is CheckResult.NOT_APPLICABLE
    (asked,) = one_pass(settings, frozenset({CheckLayer.HOST}), ActiveDepth.QUICK)[1:2]
    assert asked.result is CheckResult.HEALTHY


def test_the_names_of_all_real_checks_are_different() -> None:
    names = [described.name for described in all_checks(LookSettings())]
    assert len(set(names)) == len(names)


def test_a_check_that_hangs_costs_its_own_row_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = Hanging()
    chosen = (Told(about("stuck", deadline=AT_ONCE), hanging), Told(about("well")))
    monkeypatch.setattr(one_pass_module, "checks", lambda settings: chosen)
    reports = one_pass(LookSettings(), frozenset({CheckLayer.HOST}), ActiveDepth.NONE)
    assert [report.result for report in reports] == [CheckResult.UNKNOWN, CheckResult.HEALTHY]
    hanging.released.set()


def test_a_log_with_a_fault_shows_it(tmp_path: Path) -> None:
    log = KernelLogFile(tmp_path / "kmsg")
    log.write("an ordinary line", XID_79)
    report = look_at_log(log.path)
    assert (report.result, [fault.code for fault in report.faults]) == (CheckResult.FAULTS, ["xid-79"])


def test_a_log_that_cannot_be_read_is_unknown_with_the_reason(tmp_path: Path) -> None:
    report = look_at_log(tmp_path / "none")
    assert (report.result, report.faults) == (CheckResult.UNKNOWN, ())
    assert "No such file" in report.why


def test_records_that_were_overwritten_keep_a_log_from_being_called_well(tmp_path: Path) -> None:
    log = KernelLogFile(tmp_path / "kmsg")
    log.skip(5000)
    log.write("the oldest line that is left")
    assert look_at_log(log.path).result is CheckResult.HEALTHY
    log.skip(7)
    log.write("a later line")
    assert look_at_log(log.path).why == "7 records were overwritten before they were read"


def test_a_recovery_action_alone_opens_nothing(tmp_path: Path) -> None:
    log = KernelLogFile(tmp_path / "kmsg")
    log.write(ACTION_RESET)
    assert look_at_log(log.path).faults == ()
