"""What every recorded description of a node in the shared cases must lead to, by the word after `expect:` beside it."""

from pathlib import Path

import pytest

from sickbay.checks import CheckOutcome, CheckResult
from sickbay.faults import FaultClass
from sickbay.other_agents.recorded import judge_node_conditions
from sickbay.recorded.model import Recorded, RecordedContext, RecordedKind

CASES = Path(__file__).parents[3] / "shared" / "cases" / "diagnostics" / "node-conditions"
FILES = sorted(path for path in CASES.glob("*") if path.suffix != ".expect")

pytestmark = pytest.mark.skipif(not FILES, reason="the shared cases lie beside a checkout, not in it")


def judge(path: Path) -> CheckOutcome:
    recorded = Recorded(kind=RecordedKind.NODE_CONDITIONS, text=path.read_text(encoding="utf-8"), path=str(path))
    return judge_node_conditions(recorded, RecordedContext())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_case_leads_to_what_its_expectation_says(path: Path) -> None:
    lines = path.with_suffix(".expect").read_text(encoding="utf-8").splitlines()
    expected = next(line for line in lines if line.startswith("expect:")).removeprefix("expect:").strip()
    outcome = judge(path)
    assert outcome.result == CheckResult(expected.split("(")[0])


def test_good_words_of_another_agent_that_are_old_are_told_to_be_no_proof() -> None:
    assert "no proof" in judge(CASES / "02-nma-describe-all-true.txt").why


def test_a_port_that_is_down_is_named_beside_a_list_that_is_not_whole() -> None:
    outcome = judge(CASES / "03-nma-networking-interface-not-running.txt")
    assert [(fault.fault_class, fault.component.id) for fault in outcome.faults] == [
        (FaultClass.NETWORK, "enp1s0f0np0")
    ]
    assert "cut" in outcome.why
