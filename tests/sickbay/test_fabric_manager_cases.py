"""The judgement of the fabric manager's recorded outputs in the shared cases, by the word after `expect:` beside it."""

from pathlib import Path

import pytest

from sickbay.checks import CheckOutcome, CheckResult
from sickbay.fabric_manager.recorded import judge_fabric_manager
from sickbay.faults import FaultClass, Rung
from sickbay.recorded.model import Recorded, RecordedContext, RecordedKind

CASES = Path(__file__).parents[3] / "shared" / "cases" / "diagnostics" / "fabricmanager-systemd"
FILES = sorted(path for path in CASES.glob("*") if path.suffix != ".expect")

pytestmark = pytest.mark.skipif(not FILES, reason="the shared cases lie beside a checkout, not in it")


def judge(path: Path) -> CheckOutcome:
    recorded = Recorded(kind=RecordedKind.FABRIC_MANAGER, text=path.read_text(encoding="utf-8"), path=str(path))
    return judge_fabric_manager(recorded, RecordedContext())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_case_leads_to_what_its_expectation_says(path: Path) -> None:
    lines = path.with_suffix(".expect").read_text(encoding="utf-8").splitlines()
    expected = next(line for line in lines if line.startswith("expect:")).removeprefix("expect:").strip()
    assert judge(path).result == CheckResult(expected.split("(")[0])


def case(number: str) -> Path:
    (path,) = (path for path in FILES if path.stem.startswith(number))
    return path


def test_errors_of_four_switches_that_are_not_fatal_are_watched() -> None:
    faults = judge(case("01")).faults
    assert {fault.component.id for fault in faults} == {f"0000:8{bus}:00" for bus in (3, 4, 5, 6)}
    assert {(fault.fault_class, fault.rung) for fault in faults} == {(FaultClass.WATCH, Rung.NONE)}
    assert sum(fault.count for fault in faults) == 18


def test_a_fabric_manager_that_was_killed_is_one_fault_beside_gpus_that_call_the_fabric_complete() -> None:
    (fault,) = judge(case("03")).faults
    assert fault.code == "fabric-manager-down"
    assert "signal=KILL" in fault.evidence[0]


def test_a_version_that_does_not_fit_is_software() -> None:
    (fault,) = judge(case("06")).faults
    assert (fault.fault_class, fault.rung) == (FaultClass.DRIVER, Rung.HUMAN)
