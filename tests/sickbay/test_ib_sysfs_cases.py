"""The judgement of every recorded network output in the shared cases; what each must lead to is in its .expect file."""

from pathlib import Path

import pytest

from sickbay.checks import CheckOutcome
from sickbay.network.recorded import judge_ib_sysfs
from sickbay.recorded.model import Recorded, RecordedContext, RecordedKind

CASES = Path(__file__).parents[3] / "shared" / "cases" / "diagnostics" / "ib-sysfs-efa"

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the shared cases lie beside a checkout, not in it")

FAULTS = {
    "01-ibstat-h100-two-ports-down.txt": {("nic-port-disabled", "mlx5_11"), ("nic-port-disabled", "mlx5_5")},
    "02-ibstat-h100-polling-and-disabled.txt": {("nic-port-polling", "mlx5_11"), ("nic-port-disabled", "mlx5_5")},
    "06-sysfs-two-ports-init.json": {("nic-port-init", "mlx5_6"), ("nic-port-init", "mlx5_8")},
    "07-sysfs-all-ports-half-rate.json": {("nic-rate-below-usual", f"mlx5_{n}") for n in (0, 1, 2, 3, 6, 7, 8, 9)},
    "08-sysfs-netdev-operstate-down.json": {("nic-interface-down", "mlx5_6")},
    "13-syslog-ib6-six-flaps.txt": {("nic-flapping", "ib6")},
}


def cases() -> list[Path]:
    return [path for path in sorted(CASES.glob("*")) if path.suffix != ".expect"] if CASES.is_dir() else []


def expectation(case: Path) -> dict[str, str]:
    lines = case.with_suffix(".expect").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def judge(case: Path) -> CheckOutcome:
    code = expectation(case).get("exit")
    recorded = Recorded(kind=RecordedKind.IB_SYSFS, text=case.read_text(), exit_code=int(code) if code else None)
    return judge_ib_sysfs(recorded, RecordedContext())


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_each_case_is_judged_as_its_expectation_says(case: Path) -> None:
    outcome = judge(case)
    assert outcome.result == expectation(case)["expect"].partition("(")[0]
    assert {(fault.code, fault.component.id) for fault in outcome.faults} == FAULTS.get(case.name, set())


def test_the_count_of_a_flapping_link_is_that_of_its_losses() -> None:
    (fault,) = judge(CASES / "13-syslog-ib6-six-flaps.txt").faults
    assert fault.count == 6
    assert "is up at the end" in fault.evidence[0]


def last_port(text: str) -> int:
    """Where the physical state of the last port stands."""
    return max(text.rfind(word) for word in ("physical_state LINK_U", "phys state:", "Physical state:", "phys_state"))


@pytest.mark.parametrize(
    "case",
    [case for case in cases() if case.suffix == ".txt" and last_port(case.read_text()) > 0],
    ids=lambda case: case.name,
)
def test_a_listing_that_ends_amid_a_port_is_never_well(case: Path) -> None:
    text = case.read_text()
    cut = Recorded(kind=RecordedKind.IB_SYSFS, text=text[: last_port(text) + 8])
    assert judge_ib_sysfs(cut, RecordedContext()).result in ("unknown", "faults")
