"""The ladder in words."""

import pytest

from sickbay.policy.explain import explain
from sickbay.policy.file import Policy, default_policy, parse_policy


def policy(text: str) -> Policy:
    return parse_policy(f"version: v7\n{text}".encode())


def test_the_shipped_ladder_of_a_lost_gpu_is_a_reboot_then_a_replacement() -> None:
    text = explain(default_policy(), "xid-79", "p5")
    assert text.index("1. reboot, one attempt") < text.index("2. replace, one attempt")
    assert "reset_gpu" not in text
    assert "approval      within 8h, else handed over" in text
    assert "a full healthy pass, idle GPUs under load for 3m, within 10m" in text
    assert "at most 2 nodes and 20 per cent of the pool are out" in text


def test_the_worst_case_is_the_sum_of_all_deadlines() -> None:
    text = explain(
        policy(
            "defaults: {soak: 1m, verify_deadline: 2m, drain: {deadline: 10m}, foreign_lock_deadline: 30m,"
            " reboot: {attempts: 2, deadline: 20m}, replace: {enabled: false},"
            " tolerance: 7m, budget: {permit_deadline: 1h}}"
        ),
        "xid-79",
        "p5",
    )
    assert "1. reboot, up to 2 attempts" in text
    assert "at worst      3h19m until a person is asked" in text


def test_a_pools_section_and_its_rules_for_a_fault_are_named() -> None:
    text = explain(policy("pools: {'p5*': {faults: {xid-79: {rung: replace, tolerance: 90s}}}}"), "xid-79", "p5-big")
    assert "Policy v7" in text
    assert "section pools.p5*" in text
    assert "starts at replace by the policy, instead of reboot" in text
    assert "tolerance     1m30s" in text
    assert "1. replace" in text


def test_an_unknown_code_is_said_to_be_unknown_and_disrupts_nothing() -> None:
    text = explain(default_policy(), "xid79", "p5")
    assert "xid79 is not in the catalogue; did you mean 'xid-79'?" in text
    assert "nothing is disrupted" in text


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        pytest.param("xid-31", "Nothing is blocked and nothing is disrupted", id="an application's own fault"),
        pytest.param("monitor-silent", "a person is asked if it lasts 4h", id="monitor trouble blocks new work alone"),
        pytest.param("driver-mismatch", "a person is asked: no repair", id="what only a person can mend"),
    ],
)
def test_what_is_not_repaired_is_said_to_be_so(code: str, expected: str) -> None:
    assert expected in explain(default_policy(), code, "p5")


def test_a_taint_of_the_policy_is_told() -> None:
    assert "new work is blocked, with a taint NoSchedule" in explain(
        policy("defaults: {taint: {enabled: true}}"), "xid-79", ""
    )
