import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.checks import CheckOutcome, CheckResult
from sickbay.fabric_manager.recorded import judge_fabric_manager
from sickbay.recorded.model import Recorded, RecordedContext, RecordedKind

ALONE = RecordedContext()
BOARD = RecordedContext(products=("NVIDIA H200",))
CARDS = RecordedContext(products=("NVIDIA GeForce RTX 4090",))


def judge(text: str, context: RecordedContext = ALONE, exit_code: int | None = None) -> CheckOutcome:
    return judge_fabric_manager(Recorded(kind=RecordedKind.FABRIC_MANAGER, text=text, exit_code=exit_code), context)


def codes(outcome: CheckOutcome) -> list[str]:
    return [fault.code for fault in outcome.faults]


def status(active: str, more: str = "", unit: str = "nvidia-fabricmanager") -> str:
    return (
        f"● {unit}.service - a service of NVIDIA's\n"
        f"     Loaded: loaded (/usr/lib/systemd/system/{unit}.service; enabled; preset: enabled)\n"
        f"     Active: {active}\n"
        f"    Process: 812 ExecStart=/usr/bin/start (code=exited, status=0/SUCCESS)\n{more}"
    )


def log(*lines: str) -> str:
    return "\n".join(f"[Nov 29 2026 08:00:{second:02}] {line}" for second, line in enumerate(lines))


START = "[INFO] [tid 7] Fabric Manager version 575.57.08 is running with the following configuration options"
READY = "[INFO] [tid 7] Successfully configured all the available GPUs and NVSwitches to route NVLink traffic."
SETTING = "[INFO] [tid 7] Option when facing NVSwitch failure = 0"
NOTHING = "nv-fabricmanager: request to query NVSwitch device failed: WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]"


@pytest.mark.parametrize(
    ("active", "result"),
    [
        ("active (running) since Sun 2026-11-29 08:00:01 UTC; 3h ago", CheckResult.HEALTHY),
        ("activating (start) since Sun 2026-11-29 08:00:01 UTC; 4s ago", CheckResult.STARTING),
        ("activating (auto-restart) (Result: exit-code) since Sun 2026-11-29 08:00:01 UTC", CheckResult.FAULTS),
        ("inactive (dead)", CheckResult.FAULTS),
        ("failed (Result: timeout) since Sun 2026-11-29 08:00:01 UTC; 1 day ago", CheckResult.FAULTS),
        ("active (exited) since Sun 2026-11-29 08:00:01 UTC", CheckResult.UNKNOWN),
        ("deactivating (stop-sigterm)", CheckResult.UNKNOWN),
    ],
)
def test_the_state_of_the_unit_decides(active: str, result: CheckResult) -> None:
    """Detection 8.15: whatever the GPUs say of their fabric, a fabric manager that is dead is a fault."""
    outcome = judge(status(active), exit_code=3 if result is CheckResult.FAULTS else 0)
    assert outcome.result is result
    assert codes(outcome) == (["fabric-manager-down"] if result is CheckResult.FAULTS else [])


def test_a_unit_that_is_not_needed_may_be_down() -> None:
    assert judge(status("inactive (dead)"), CARDS).result is CheckResult.NOT_APPLICABLE
    assert judge(status("inactive (dead)"), BOARD).result is CheckResult.FAULTS
    assert judge(status("failed (Result: signal)", unit="nvidia-imex"), CARDS).result is CheckResult.FAULTS


def test_other_services_have_codes_of_their_own_and_foreign_ones_are_not_judged() -> None:
    assert codes(judge(status("failed (Result: signal)", unit="nvidia-imex"))) == ["imex-down"]
    assert codes(judge(status("inactive (dead)", unit="nvidia-persistenced"))) == ["persistence-service-down"]
    assert judge(status("active (running)", unit="nvidia-suspend")).result is CheckResult.UNKNOWN


def test_one_of_two_units_that_is_down_is_not_hidden_by_the_other() -> None:
    text = status("active (running)", unit="nvidia-persistenced") + status("failed (Result: core-dump)")
    assert codes(judge(text)) == ["fabric-manager-down"]


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("active\n", CheckResult.HEALTHY),
        ("failed\n", CheckResult.FAULTS),
        ("Unit nvidia-fabricmanager.service could not be found.\n", CheckResult.UNKNOWN),
        (
            "Id=nvidia-fabricmanager.service\nLoadState=loaded\nActiveState=failed\nSubState=failed\n",
            CheckResult.FAULTS,
        ),
        ("", CheckResult.UNKNOWN),
        ("good morning\n", CheckResult.UNKNOWN),
    ],
)
def test_shorter_answers_of_systemctl_are_read(text: str, result: CheckResult) -> None:
    assert judge(text).result is result


def test_a_status_that_is_cut_before_the_state_is_unknown() -> None:
    lines = status("active (running)").splitlines()
    assert judge("\n".join(lines[:2])).result is CheckResult.UNKNOWN


def test_nothing_to_do_is_judged_by_the_product_and_the_fabric_of_other_recordings() -> None:
    assert judge(NOTHING).result is CheckResult.UNKNOWN
    assert judge(NOTHING, CARDS).result is CheckResult.NOT_APPLICABLE
    assert judge(NOTHING, BOARD).result is CheckResult.UNKNOWN
    waiting = BOARD.model_copy(update={"fabric_in_progress": True})
    assert codes(judge(NOTHING, waiting)) == ["fabric-manager-down"]
    assert judge(status("failed (Result: exit-code)", NOTHING)).result is CheckResult.UNKNOWN


def test_a_log_is_healthy_from_the_line_on_that_the_fabric_is_set_up() -> None:
    assert judge(log(START, SETTING, READY)).result is CheckResult.HEALTHY
    assert judge(log(START, SETTING)).result is CheckResult.UNKNOWN
    assert judge(log(START, READY, START)).result is CheckResult.UNKNOWN
    assert judge(log(SETTING)).result is CheckResult.UNKNOWN


def test_a_fatal_error_of_a_switch_is_a_fault_of_that_switch() -> None:
    error = (
        "[ERROR] [tid 9] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:C3:00.0 port 8"
    )
    (fault,) = judge(log(START, READY, error)).faults
    assert (fault.code, fault.component.id) == ("sxid-20034", "0000:c3:00")


def test_an_error_that_is_not_known_is_unknown_and_told() -> None:
    outcome = judge(log(START, READY, "[ERROR] [tid 9] the moon is full"))
    assert outcome.result is CheckResult.UNKNOWN
    assert "the moon is full" in outcome.why


def test_fewer_switches_than_the_board_has_are_a_fault() -> None:
    line = "[ERROR] [tid 9] detected number of NVSwitches don't match with any supported system topology"
    assert codes(judge(log(START, line))) == ["fabric-topology-mismatch"]


def test_what_ended_an_earlier_start_is_over_once_a_later_one_is_ready() -> None:
    line = "[ERROR] [tid 9] detected number of NVSwitches don't match with any supported system topology"
    assert judge(log(START, line, START, READY)).result is CheckResult.HEALTHY
    assert codes(judge(log(START, READY, START, line))) == ["fabric-topology-mismatch"]
    assert codes(judge(log(START, line, START))) == ["fabric-topology-mismatch"]


def test_a_unit_that_could_not_be_started_is_down() -> None:
    line = "systemd[1]: nvidia-fabricmanager.service: Failed with result 'exit-code'."
    assert codes(judge(line)) == ["fabric-manager-down"]


def imex(status_of_domain: str | None, node: str = "READY", connection: str = "CONNECTED") -> str:
    nodes = {"0": {"status": node, "host": "10.1.0.1", "connections": {"0": {"status": connection}}}}
    domain = {"nodes": nodes, "timestamp": "11/29/2026 08:00:00.100"}
    return json.dumps(domain if status_of_domain is None else domain | {"status": status_of_domain})


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (imex("UP"), CheckResult.HEALTHY),
        (imex("DEGRADED"), CheckResult.FAULTS),
        (imex("DOWN"), CheckResult.FAULTS),
        (imex("UP", node="UNAVAILABLE"), CheckResult.UNKNOWN),
        (imex("UP", connection="DISCONNECTED"), CheckResult.UNKNOWN),
        (imex("WONDERFUL"), CheckResult.UNKNOWN),
        (imex(None), CheckResult.UNKNOWN),
        ('{"status": "UP", "nodes": {}}', CheckResult.UNKNOWN),
        ('{"status": 3}', CheckResult.UNKNOWN),
        ("{" * 5000, CheckResult.UNKNOWN),
    ],
)
def test_the_domains_own_status_outranks_that_of_its_nodes(text: str, result: CheckResult) -> None:
    assert judge(text).result is result


@given(kept=st.integers(0, len(imex("UP")) - 1))
def test_no_json_that_is_cut_is_healthy(kept: int) -> None:
    assert judge(imex("UP")[:kept]).result is CheckResult.UNKNOWN


@given(text=st.text(max_size=300))
def test_nothing_that_is_fed_raises_or_is_healthy(text: str) -> None:
    assert judge(text).result is not CheckResult.HEALTHY or text.strip() == "active"


def test_a_command_that_failed_proves_nothing_good() -> None:
    assert judge(imex("UP"), exit_code=1).result is CheckResult.UNKNOWN
