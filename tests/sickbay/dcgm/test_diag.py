"""Runs of `dcgmi diag` in every shape (detection 8.18): each failure is told, and nothing passes that did not pass."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.checks import CheckOutcome, CheckResult
from sickbay.dcgm.diag import judge_diag_output
from sickbay.faults import FaultClass, Rung
from tests.sickbay.dcgm.outputs import (
    check_v4,
    diag_table,
    diag_v3,
    diag_v4,
    result_v4,
    warning,
)

MEMTEST = warning("Found 3 faulty memory elements on GPU 2. Run a field diagnostic on the GPU.", 52, 2)


def judge(run: object, exit_code: int | None = 0, gpus: int | None = None) -> CheckOutcome:
    return judge_diag_output(run if isinstance(run, str) else json.dumps(run, indent=2), exit_code, gpus)


def found(outcome: CheckOutcome) -> set[tuple[str, str, Rung]]:
    return {(fault.code, fault.component.id, fault.rung) for fault in outcome.faults}


@pytest.mark.parametrize("run", [diag_v4(), diag_v3(), diag_table(("PCIe", "Pass - All"), ("Memtest", "Pass - All"))])
def test_a_run_that_passed_everywhere_is_well(run: object) -> None:
    assert judge(run).result is CheckResult.HEALTHY
    assert judge(run, None).result is CheckResult.HEALTHY


@pytest.mark.parametrize("code", [205, 226, 217, 203, 199, 200, 235, 245, 254, 1, 137, -9, 127])
def test_an_exit_code_that_a_passing_body_does_not_bear_out_leaves_the_run_unknown(code: int) -> None:
    outcome = judge(diag_v4(), code)
    assert outcome.result is CheckResult.UNKNOWN
    assert "dcgmi: " in outcome.why


@pytest.mark.parametrize(("code", "fault"), [(238, "gpu-lost"), (237, "gpu-reset-required")])
@pytest.mark.parametrize("body", ["", "Error: cannot run", json.dumps(diag_v4())])
def test_an_exit_that_only_a_sick_gpu_explains_is_its_fault(code: int, fault: str, body: str) -> None:
    assert {fault for fault, _, _ in found(judge(body, code))} == {fault}


def test_every_gpu_of_every_test_is_read() -> None:
    results = [result_v4(0), result_v4(1), result_v4(2, "Fail", MEMTEST), result_v4(3)]
    outcome = judge(diag_v4(check_v4("memory", results, "Fail")), 205)
    assert found(outcome) == {("dcgm-hardware", "index 2", Rung.REPLACE)}
    assert "GPU 2" in outcome.faults[0].evidence[0]
    assert not outcome.why


@pytest.mark.parametrize(
    ("error_id", "severity", "code", "rung"),
    [
        (29, 5, "dcgm-setting", Rung.NONE),
        (50, 1, "dcgm-advice", Rung.NONE),
        (50, 4, "dcgm-advice", Rung.NONE),
        (80, 2, "row-remap-failed", Rung.REPLACE),
        (85, 6, "row-remap-pending", Rung.RESET_GPU),
        (57, 2, "dcgm-memory-error", Rung.RESET_GPU),
        (120, 2, "gpu-lost", Rung.REBOOT),
        (122, 4, "dcgm-imex", Rung.NONE),
        (125, 6, "gpu-recovery-action", Rung.RESET_GPU),
        (126, 6, "gpu-recovery-action", Rung.REBOOT),
        (127, 2, "gpu-recovery-action", Rung.STOP_WORKLOAD),
        (130, 6, "dcgm-reset", Rung.RESET_GPU),
        (130, 2, "dcgm-isolate", Rung.HUMAN),
        (130, 4, "dcgm-triage", Rung.HUMAN),
        (999, 2, "dcgm-unknown-error", Rung.NONE),
        (999, 6, "dcgm-unknown-error", Rung.NONE),
    ],
)
def test_number_and_severity_decide_the_rung(error_id: int, severity: int, code: str, rung: Rung) -> None:
    failed = result_v4(1, "Fail", warning("something of GPU 1", error_id, severity))
    outcome = judge(diag_v4(check_v4("software", [result_v4(0), failed], "Fail"), gpus=2), 226)
    assert found(outcome) == {(code, "index 1", rung)}


@pytest.mark.parametrize(
    ("number", "code", "rung"),
    [
        (79, "xid-79", Rung.REBOOT),
        (31, "xid-31", Rung.NONE),
        (145, "dcgm-xid", Rung.NONE),
        (149, "dcgm-xid", Rung.NONE),
    ],
)
def test_an_xid_weighs_as_in_the_log_and_nvlinks_weight_stands_in_the_log_alone(
    number: int, code: str, rung: Rung
) -> None:
    """NVSentinel#1357 (detection 8.6): DCGM calls Nonfatal 144 to 150 fatal, which the kernel's line denies."""
    failed = result_v4(0, "Fail", warning(f"Detected XID {number} for GPU 0", 101, 4))
    assert found(judge(diag_v4(check_v4("software", [failed], "Fail"), gpus=1), 226)) == {(code, "index 0", rung)}


def test_configuration_is_never_a_reason_for_a_step_on_hardware() -> None:
    (fault,) = judge(diag_v3(Persistence_Mode="Fail")).faults
    assert (fault.fault_class, fault.rung, fault.component.id) == (FaultClass.DRIVER, Rung.NONE, "unknown")


def test_a_list_of_gpus_is_read_by_the_gpu_that_the_text_names() -> None:
    text = "Persistence mode for GPU 3 is currently disabled. Enable it with nvidia-smi -i 3 -pm 1"
    result = {"gpu_ids": "0,1,2,3", "status": "FAIL", "warnings": [text]}
    run = {
        "DCGM GPU Diagnostic": {"test_categories": [{"category": "D", "tests": [{"name": "x", "results": [result]}]}]}
    }
    assert found(judge(run)) == {("dcgm-setting", "index 3", Rung.NONE)}


def test_what_dcgm_itself_broke_is_no_measurement() -> None:
    """DCGM#253: the test says Fail, each GPU below it Pass."""
    broken = warning("There was an internal error during the test: 'A child process (9) exited'", 44, 4)
    by_json = judge(diag_v4(check_v4("pcie", [result_v4(0)], "Fail", warnings=[broken]), gpus=1), 226)
    by_table = judge(
        diag_table(
            ("pcie", "Fail"), ("Warning", "There was an internal error during the test: 'no JSON'"), ("", "GPU0: Pass")
        )
    )
    for outcome in (by_json, by_table):
        assert (outcome.result, outcome.faults) == (CheckResult.UNKNOWN, ())
        assert "internal error" in outcome.why


def test_a_test_that_says_fail_while_each_gpu_passed_has_measured_nothing() -> None:
    run = diag_v4(check_v4("memory", [result_v4(0), result_v4(1)], "Fail"), gpus=2)
    assert judge(run, 226).result is CheckResult.UNKNOWN


@pytest.mark.parametrize(
    ("text", "error_id", "result"),
    [
        ("Couldn't allocate at least 95.0% of GPU memory on GPU 0", 56, CheckResult.UNKNOWN),
        ("words that nobody knows", 0, CheckResult.UNKNOWN),
        ("Detected clocks event due to power violation in GPU 0.", 12, CheckResult.HEALTHY),
    ],
)
def test_a_pass_that_warns_of_more_than_advice_is_none(text: str, error_id: int, result: CheckResult) -> None:
    """DCGM#284: an allocation fails, and the test passes."""
    warned = warning(text, error_id, 4)
    assert judge(diag_v4(check_v4("memory", [result_v4(0, "Pass", warned)]), gpus=1)).result is result
    assert judge(diag_v4(check_v4("memory", [result_v4(0)], "Pass", warnings=[warned]), gpus=1)).result is result


def test_a_skip_is_told_and_is_no_pass() -> None:
    skipped = judge(diag_v4(check_v4("memory", [result_v4(gpu, "Skip") for gpu in range(2)], "Skip"), gpus=2))
    assert (skipped.result, skipped.why) == (CheckResult.UNKNOWN, "memory was skipped")
    assert judge(diag_table(("PCIe", "Skip - All"))).result is CheckResult.UNKNOWN


def test_the_field_diagnostic_that_is_not_installed_is_only_told() -> None:
    outcome = judge(diag_table(("PCIe", "Pass - All"), ("EUD Test", "Skip - All")))
    assert (outcome.result, outcome.why) == (CheckResult.HEALTHY, "EUD Test was skipped")


@pytest.mark.parametrize("word", ["Passed?", "", "OK", "None"])
def test_a_word_that_is_no_status_is_no_pass(word: str) -> None:
    assert judge(diag_v4(check_v4("memory", [result_v4(0, word)]), gpus=1)).result is CheckResult.UNKNOWN
    assert judge(diag_v3(Inforom=word)).result is CheckResult.UNKNOWN


def test_a_gpu_without_a_result_is_not_judged() -> None:
    outcome = judge(diag_v4(check_v4("memory", [result_v4(gpu) for gpu in (0, 1, 3)]), gpus=4))
    assert (outcome.result, outcome.why) == (CheckResult.UNKNOWN, "memory has no result for GPU 2")


def test_fewer_gpus_than_there_should_be_are_not_the_whole_node() -> None:
    assert judge(diag_v4(gpus=7), gpus=8).why == "it shows 7 of 8 GPUs"
    assert judge(diag_v4(gpus=8), gpus=8).result is CheckResult.HEALTHY


def test_text_around_the_json_is_skipped_and_foreign_json_is_no_diagnostic() -> None:
    printed = f"{{not json}}\nWARNING: set affinity failed\n{json.dumps(diag_v4())}\nDone.\n"
    assert judge(printed).result is CheckResult.HEALTHY
    assert judge('sched_setaffinity failed\n{"GPUs": [{"gpuId": 0, "maxRxBw": 55.6}]}').result is CheckResult.UNKNOWN
    assert judge({"DCGM Diagnostics": diag_v4()["DCGM Diagnostic"]}).result is CheckResult.UNKNOWN


@pytest.mark.parametrize(
    "text", ["", "  \n", "no JSON", "[]", "{}", '{"DCGM Diagnostic": null}', '{"DCGM Diagnostic": {}}']
)
def test_no_result_is_unknown_whatever_the_exit_code(text: str) -> None:
    assert judge(text, 0).result is CheckResult.UNKNOWN


def test_a_refusal_to_run_is_unknown_with_its_words() -> None:
    refused = {"DCGM Diagnostic": {"runtime_error": "Unable to run: a GPU is in use", "test_categories": []}}
    assert "a GPU is in use" in judge(refused, 226).why


def test_a_table_of_version_3_lists_gpus_by_status() -> None:
    text = "GPU 1 Max power of 224.1 did not reach desired power minimum target_power_min_ratio of 224.2 for GPU 1"
    outcome = judge(
        diag_table(
            ("Targeted Power", "Pass - GPUs: 0, 2, 3"), ("", "Fail - GPU: 1"), ("Warning", text), ("Info", "299 W")
        ),
    )
    assert found(outcome) == {("dcgm-advice", "index 1", Rung.NONE)}
    assert text in outcome.faults[0].evidence[0]


def test_a_table_of_version_4_lists_statuses_by_gpu() -> None:
    outcome = judge(
        diag_table(
            ("memory", "Fail"),
            ("Warning: GPU2", "GPU 2 had uncorrectable memory errors and row remapping failed."),
            ("", "GPU0: Pass"),
            ("", "GPU1: Pass"),
            ("", "GPU2: Fail"),
            metadata={"DCGM Version": "4.4.1", "GPU Device IDs Detected": "2330, 2330, 2330"},
        ),
    )
    assert found(outcome) == {("row-remap-failed", "index 2", Rung.REPLACE)}


def test_a_table_that_shows_fewer_gpus_than_it_detected_is_unknown() -> None:
    outcome = judge(
        diag_table(
            ("memory", "Pass"), ("", "GPU0: Pass"), ("", "GPU2: Pass"), metadata={"GPU Device IDs Detected": "1,1,1"}
        )
    )
    assert outcome.result is CheckResult.UNKNOWN


def test_an_error_row_is_a_failure_though_no_word_says_fail() -> None:
    outcome = judge(diag_table(("Error", "GPU 5 has uncorrectable memory errors and row remappings are pending")))
    assert found(outcome) == {("row-remap-pending", "index 5", Rung.RESET_GPU)}


def test_failures_in_a_part_of_a_document_are_kept() -> None:
    failing = json.dumps(diag_v4(check_v4("memory", [result_v4(2, "Fail", MEMTEST), result_v4(3)], "Fail")), indent=1)
    cut = failing[: failing.index('"entity_groups"')]
    assert found(judge(cut, None)) == {("dcgm-hardware", "index 2", Rung.REPLACE)}
    rows = diag_table(
        ("GPU Memory", "Pass - GPUs: 1, 2"), ("", "Fail - GPU: 0"), ("Warning", "Found 3 faulty memory elements")
    )
    fragment = "\n".join(line for line in rows.splitlines() if line.startswith("| ") and "Diagnostic" not in line)
    assert found(judge(fragment, None)) == {("dcgm-hardware", "index 0", Rung.REPLACE)}


PASSING = (
    json.dumps(diag_v4(), indent="\t"),
    json.dumps(diag_v3()),
    diag_table(("PCIe", "Pass - All"), ("SM", "Pass")),
)


@given(st.sampled_from(PASSING), st.data())
def test_a_run_that_lost_its_end_is_never_well(text: str, data: st.DataObject) -> None:
    whole = len(text.rstrip())
    cut = text[: data.draw(st.integers(0, whole - 1))]
    assert judge(cut).result is CheckResult.UNKNOWN


@given(st.sampled_from(PASSING), st.data())
def test_a_mutated_run_raises_nothing_and_no_other_word_becomes_a_pass(text: str, data: st.DataObject) -> None:
    passes = [at for at in range(len(text)) if text.startswith("Pass", at)]
    at = data.draw(st.sampled_from(passes))
    word = data.draw(st.text(st.characters(codec="ascii", exclude_characters='"\\|{}[]\n'), min_size=1, max_size=8))
    mutated = f"{text[:at]}{word}{text[at + 4 :]}"
    if word.strip().lower() not in ("pass", "pass - all"):
        assert judge(mutated).result is not CheckResult.HEALTHY


@given(st.one_of(st.text(), st.text(alphabet='{}[]":,|+-=GPU0 Pass\n')))
def test_no_text_raises_and_none_of_noise_is_well(text: str) -> None:
    assert judge(text).result is CheckResult.UNKNOWN


def test_deep_and_hostile_text_costs_little_and_is_unknown() -> None:
    assert judge("| a |" + " " * 500_000 + "x").result is CheckResult.UNKNOWN
    assert judge(diag_table(("memory", "Fail"), ("Warning", "nvlink" * 20_000))).result is CheckResult.FAULTS
    assert judge('{"status": "Pass", "gpu_id": 0} ' * 20_000).result is CheckResult.UNKNOWN
    assert judge('{"a":' * 5000).result is CheckResult.UNKNOWN
    assert judge('{"entity_id": ' + "9" * 5000 + "}").result is CheckResult.UNKNOWN
