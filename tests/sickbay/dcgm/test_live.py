"""What live looks make of DCGM's words: when, where, and whether DCGM only remembers."""

from datetime import UTC, datetime

import pytest

from sickbay.checks import CheckMoment, CheckOutcome, CheckResult, judged
from sickbay.dcgm.health import judge_health_output
from sickbay.dcgm.live import (
    HealthMemory,
    addresses,
    needs_addresses,
    seen_live,
    without_absent_links,
    without_remembered,
)
from sickbay.faults import Rung
from tests.sickbay.dcgm.outputs import border, health_json, row

BOOT = datetime(2026, 3, 1, 12, tzinfo=UTC)
XID_95 = {0: {"Memory system": ("Failure", "Detected XID 95 for GPU 0")}}
LINK = {1: {"NVLINK system": ("Failure", "GPU 1's NvLink link 2 is currently down")}}


def moment(memory: str = "") -> CheckMoment:
    return CheckMoment(now=BOOT, boot_id="boot-1", boot_seen_at=BOOT, memory=memory)


def look(report: str, memory: str = "") -> CheckOutcome:
    outcome = judge_health_output(report, 0)
    assert outcome is not None
    return without_remembered(outcome, HealthMemory.of(moment(memory)))


def codes(outcome: CheckOutcome) -> set[str]:
    return {fault.code for fault in outcome.faults}


def test_an_xid_that_dcgm_only_remembers_is_told_once() -> None:
    """DCGM forgets no Xid before its host engine starts anew, also over a reset (detection, 3b)."""
    first = look(health_json("Failure", XID_95))
    assert codes(first) == {"xid-95"}
    second = look(health_json("Failure", XID_95), first.memory)
    assert (second.result, second.faults) == (CheckResult.HEALTHY, ())
    assert "only remembers xid-95" in second.why
    assert codes(look(health_json("Failure", XID_95 | LINK), second.memory)) == {"nvlink-down"}


def test_what_dcgm_measures_anew_counts_at_every_look() -> None:
    first = look(health_json("Failure", LINK))
    assert codes(look(health_json("Failure", LINK), first.memory)) == codes(first) == {"nvlink-down"}


@pytest.mark.parametrize(
    ("products", "rungs"),
    [
        (("NVIDIA A100-PCIE-40GB",), ()),
        (("NVIDIA L40S",), ()),
        (("NVIDIA A100-SXM4-80GB",), (Rung.RESET_GPU,)),
        (("NVIDIA H100 80GB HBM3",), (Rung.RESET_GPU,)),
        (("",), (Rung.BLOCK_NEW_WORK,)),
        (("NVIDIA Z900",), (Rung.BLOCK_NEW_WORK,)),
    ],
)
def test_links_that_a_product_need_not_have_end_no_work(products: tuple[str, ...], rungs: tuple[Rung, ...]) -> None:
    """detection 8.16: DCGM calls the absent bridges of an A100 PCIe links that are down."""
    outcome = without_absent_links(look(health_json("Failure", LINK)), products)
    assert tuple(fault.rung for fault in outcome.faults) == rungs
    assert outcome.result is (CheckResult.FAULTS if rungs else CheckResult.HEALTHY)
    beside = without_absent_links(look(health_json("Failure", LINK | XID_95)), products)
    assert "xid-95" in codes(beside)


def test_an_xid_that_dcgm_has_forgotten_counts_when_it_comes_again() -> None:
    first = look(health_json("Failure", XID_95))
    forgotten = look(health_json(), first.memory)
    assert codes(look(health_json("Failure", XID_95), forgotten.memory)) == {"xid-95"}


def test_a_look_without_an_answer_forgets_nothing() -> None:
    first = look(health_json("Failure", XID_95))
    silent = without_remembered(judged((), "no answer in time"), HealthMemory.of(moment(first.memory)))
    assert silent.result is CheckResult.UNKNOWN
    assert look(health_json("Failure", XID_95), silent.memory).faults == ()


def test_what_cannot_be_judged_beside_a_remembered_xid_stays_unknown() -> None:
    first = look(health_json("Failure", XID_95))
    second = look(health_json("Failure", {**XID_95, 1: {"SM system": ("Internal error", "")}}), first.memory)
    assert (second.result, second.faults) == (CheckResult.UNKNOWN, ())


def test_memory_that_cannot_be_read_is_none() -> None:
    assert HealthMemory.of(moment("{broken")) == HealthMemory()


def discovery(*gpus: tuple[int, str]) -> str:
    lines = ["8 GPUs found.", border(), *row("GPU ID", "Device Information"), border()]
    for number, address in gpus:
        lines += [*row(str(number), "Name: NVIDIA H100"), *row("", f"PCI Bus ID: {address}"), border()]
    return "\n".join([*lines, ""])


def test_faults_get_the_kernels_addresses_where_dcgm_tells_them() -> None:
    known = addresses(discovery((0, "00000000:53:00.0"), (1, "00000001:A8:00.0"), (2, "garbage")))
    assert known == {"0": "0000:53:00", "1": "0001:a8:00"}
    outcome = look(health_json("Failure", XID_95 | {7: XID_95[0]}))
    assert needs_addresses(outcome)
    first, second = seen_live(outcome, moment(), known).faults
    assert (first.component.id, first.boot_id, first.first_seen) == ("0000:53:00", "boot-1", BOOT)
    assert second.component.id == "index 7"


def test_a_discovery_that_says_nothing_tells_no_address() -> None:
    assert addresses("") == addresses("Error: cannot connect") == {}
