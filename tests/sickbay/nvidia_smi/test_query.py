"""`nvidia-smi -q` as text, as XML and as csv: the same values, and the same judgement by NVML's own rules."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.checks import CheckResult
from sickbay.faults import ComponentKind, Rung
from tests.sickbay.nvidia_smi.documents import A10G, csv_rows, pci, query_text, query_xml
from tests.sickbay.nvidia_smi.judged import found, judge

Form = Callable[..., str]
FORMS: list[Form] = [query_text, query_xml]
ALL_FORMS: list[Form] = [*FORMS, csv_rows]

every_form = pytest.mark.parametrize("form", ALL_FORMS)
both_queries = pytest.mark.parametrize("form", FORMS)


@every_form
def test_a_whole_output_without_trouble_is_healthy(form: Form) -> None:
    assert judge(form(8)).result is CheckResult.HEALTHY


@every_form
@pytest.mark.parametrize(
    ("label", "value", "code"),
    [
        ("dram", "3", "ecc-uncorrected"),
        ("pending", "Yes", "row-remap-pending"),
        ("failure", "Yes", "row-remap-failed"),
        ("temp", "GPU is lost", "gpu-lost"),
        ("used", "[GPU requires reset]", "gpu-reset-required"),
    ],
)
def test_trouble_is_found_in_every_form_and_names_its_gpu(form: Form, label: str, value: str, code: str) -> None:
    assert found(judge(form(2, {1: {label: value}}))) == [(code, pci(1))]


@both_queries
@pytest.mark.parametrize(
    ("label", "value", "code"),
    [
        ("sram", "1", "ecc-uncorrected"),
        ("threshold", "Yes", "ecc-sram-threshold"),
        ("rows", "512", "row-remap-exhausted"),
        ("action", "Reset", "gpu-recovery-action"),
        ("repair", "Yes", "gpu-repair-pending"),
        ("brake", "Active", "clocks-power-brake"),
        ("summary", "Unhealthy", "fabric-unhealthy"),
        ("route", "True", "fabric-unhealthy"),
        ("status", "Insufficient Resources", "fabric-refused"),
    ],
)
def test_what_only_a_query_tells_is_found_in_it(form: Form, label: str, value: str, code: str) -> None:
    """The recovery action, the fabric's health and its status (detection 8.15) among them."""
    assert (code, pci(0)) in found(judge(form(2, {0: {label: value}})))


@pytest.mark.parametrize(
    ("word", "rung"),
    [("Reset", Rung.RESET_GPU), ("Reboot", Rung.REBOOT), ("Drain P2P", Rung.STOP_WORKLOAD)],
)
def test_the_drivers_own_verdict_decides_the_rung(word: str, rung: Rung) -> None:
    (fault,) = judge(query_text(2, {1: {"action": word}})).faults
    assert fault.rung is rung


@both_queries
def test_power_that_brakes_all_gpus_is_one_fault_of_the_host(form: Form) -> None:
    braked = {index: {"slowdown": "Active", "brake": "Active"} for index in range(4)}
    (fault,) = judge(form(4, braked)).faults
    assert (fault.code, fault.component.kind) == ("host-power-brake", ComponentKind.HOST)


@both_queries
@pytest.mark.parametrize("state", ["In Progress", "Not Started"])
def test_a_registration_that_is_not_finished_is_unknown(form: Form, state: str) -> None:
    outcome = judge(form(2, {1: {"state": state, "status": "N/A"}}))
    assert outcome.result is CheckResult.UNKNOWN
    assert "registration" in outcome.why


@both_queries
def test_a_recovery_action_of_an_unknown_word_is_unknown(form: Form) -> None:
    outcome = judge(form(2, {1: {"action": "Sing"}}))
    assert outcome.result is CheckResult.UNKNOWN
    assert "Sing" in outcome.why


@every_form
def test_one_cell_that_errs_is_unknown_and_names_the_cell(form: Form) -> None:
    outcome = judge(form(2, {1: {"util": "ERR!"}}))
    assert outcome.result is CheckResult.UNKNOWN
    assert "GPU 1" in outcome.why


@every_form
def test_a_gpu_whose_cells_all_err_does_not_answer(form: Form) -> None:
    silent = dict.fromkeys(("name", "temp", "used", "util", "dram"), "Unknown Error")
    assert ("gpu-not-answering", pci(1)) in found(judge(form(2, {1: silent})))


@every_form
def test_values_that_do_not_exist_are_no_faults_and_no_zeros(form: Form) -> None:
    """A GPU without ECC, and one that lacks the counts that its kind has (detection 8.16)."""
    without = {"ecc": "N/A", "dram": "N/A", "sram": "N/A", "name": "NVIDIA GeForce RTX 4090"}
    without |= {"pending": "N/A", "failure": "N/A", "rows": "N/A", "state": "N/A", "status": "N/A", "summary": "N/A"}
    assert judge(form(1, {0: without})).result is CheckResult.HEALTHY
    assert judge(form(1, {0: {"dram": "N/A", "sram": "N/A"}})).result is CheckResult.UNKNOWN
    assert judge(form(1, {0: {"pending": "N/A", "failure": "N/A"}})).result is CheckResult.UNKNOWN


@every_form
def test_in_mig_mode_remapped_rows_may_be_absent(form: Form) -> None:
    assert judge(form(1, {0: {"mig": "Enabled", "pending": "N/A", "failure": "N/A"}})).result is CheckResult.HEALTHY


@pytest.mark.parametrize("form", ALL_FORMS)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_no_document_that_is_cut_is_healthy(form: Form, data: st.DataObject) -> None:
    lines = form(3).splitlines()
    whole = len(lines) if not lines[-1].startswith(("\t</gpu", "</nvidia_smi_log")) else len(lines) - 1
    outcome = judge("\n".join(lines[: data.draw(st.integers(0, whole - 1))]))
    assert outcome.result in (CheckResult.UNKNOWN, CheckResult.FAULTS)


@pytest.mark.parametrize("form", ALL_FORMS)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_no_document_that_lost_a_line_of_memory_raises(form: Form, data: st.DataObject) -> None:
    text = form(2)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    judge(text[:start] + data.draw(st.text(max_size=20)) + text[end:])


def test_fewer_blocks_than_attached_gpus_are_no_health() -> None:
    outcome = judge(query_text(4).replace("Attached GPUs                             : 4", "Attached GPUs : 8"))
    assert outcome.result is CheckResult.UNKNOWN
    assert "8 GPUs are attached, 4 are shown" in outcome.why


def test_lines_that_somebody_left_out_are_no_health() -> None:
    text = query_text(2).replace("    Fan Speed                             : N/A\n", "    [...]\n")
    assert judge(text).result is CheckResult.UNKNOWN


def test_a_filtered_document_shows_faults_and_proves_no_health() -> None:
    """Retired pages of a GPU before Ampere: `-q -d PAGE_RETIREMENT`."""
    head = "Attached GPUs                             : 1\nGPU 00000002:00:1E.0\n    Retired Pages\n"
    pages = "        Single Bit ECC  : {}\n        Double Bit ECC  : {}\n        Pending Page Blacklist : {}\n"
    assert found(judge(head + pages.format(12, 51, "No"))) == [("page-retirement-exhausted", "0002:00:1e")]
    assert found(judge(head + pages.format(3, 0, "Yes"))) == [("page-retirement-pending", "0002:00:1e")]
    outcome = judge(head + pages.format(3, 0, "No"))
    assert outcome.result is CheckResult.UNKNOWN
    assert "only retired pages" in outcome.why


def test_a_fragment_keeps_its_fault_and_says_that_the_gpu_is_not_named() -> None:
    (fault,) = judge("    GPU Recovery Action                   : Reboot\n").faults
    assert (fault.component.id, fault.rung) == ("unknown", Rung.REBOOT)
    assert "not named" in fault.evidence[0]
    assert judge("    GPU Recovery Action                   : None\n").result is CheckResult.UNKNOWN


def test_the_device_number_of_an_address_is_kept() -> None:
    text = query_text(1, {0: {"pending": "Yes"}}).replace("00000000:1A:00.0", "00000000:10:1D.0")
    assert found(judge(text)) == [("row-remap-pending", "0000:10:1d")]


def test_the_fields_before_driver_570_tell_what_the_driver_asks_for() -> None:
    text = query_text(1).replace("    GPU Recovery Action                   : None\n", "")
    asked = text.replace(
        "Reset Required                    : Requested functionality has been deprecated", "Reset Required : Yes"
    )
    assert found(judge(asked)) == [("gpu-recovery-action", pci(0))]


def test_counts_of_a_mig_device_are_not_taken_for_the_gpus() -> None:
    counts = "        ECC Errors\n            Volatile\n                SRAM Uncorrectable : 3\n"
    device = f"    MIG Device\n        Index : 0\n{counts}"
    text = query_text(1, {0: {"mig": "Enabled"}})
    assert judge(text.replace("    GPU UUID", device + "    GPU UUID")).result is CheckResult.HEALTHY


@pytest.mark.parametrize(
    "declaration",
    [
        '<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]>',
        '<!DOCTYPE nvidia_smi_log [<!ENTITY file SYSTEM "file:///etc/passwd">]>',
    ],
)
def test_xml_with_entities_is_not_read(declaration: str) -> None:
    text = query_xml(1).replace('<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">', declaration)
    outcome = judge(text)
    assert outcome.result is CheckResult.UNKNOWN
    assert "declarations" in outcome.why


def test_xml_that_is_deeper_than_any_of_the_tools_is_not_read() -> None:
    text = query_xml(1).replace("<fabric>", "<deep>" * 100_000 + "<fabric>")
    assert judge(text).result is CheckResult.UNKNOWN


def test_a_gpu_before_the_cut_of_an_xml_keeps_its_fault() -> None:
    text = query_xml(3, {0: {"dram": "9"}})
    outcome = judge(text[: text.index("GPU-7d0c0000-0000-4000-8000-000000000001")])
    assert found(outcome) == [("ecc-uncorrected", pci(0))]
    assert "cut" in outcome.why


def test_csv_without_the_columns_that_prove_health_is_unknown() -> None:
    outcome = judge(csv_rows(2, without=("ecc.errors.uncorrected.volatile.dram",)))
    assert outcome.result is CheckResult.UNKNOWN
    outcome = judge(csv_rows(2, without=("count",)))
    assert outcome.result is CheckResult.UNKNOWN
    assert "how many GPUs" in outcome.why


def test_rows_without_names_or_of_another_length_are_unknown() -> None:
    rows = csv_rows(2)
    assert judge(rows.split("\n", 1)[1]).result is CheckResult.UNKNOWN
    assert judge(rows.rstrip().rsplit(",", 1)[0]).result is CheckResult.UNKNOWN


def test_errors_among_values_without_names_are_found() -> None:
    outcome = judge("0, NVIDIA H200, 00000000:1A:00.0, 31\n1, NVIDIA H200, 00000000:2B:00.0, [GPU is lost]\n")
    assert found(outcome) == [("gpu-lost", pci(1))]
    assert "no names" in outcome.why


VOLTA = """Driver Version                  : 418.87.01
Attached GPUs                   : 1
GPU 00000000:00:1E.0
    Product Name                : Tesla V100-SXM2-16GB
    GPU UUID                    : GPU-2b
    Clocks Throttle Reasons
        HW Slowdown             : Not Active
    Ecc Mode
        Current                 : Enabled
        Pending                 : Enabled
    ECC Errors
        Volatile
            Single Bit
                Total           : 0
            Double Bit
                Total           : {double}
    Retired Pages
        Single Bit ECC          : 2
        Double Bit ECC          : 0
        Pending                 : {pending}
    Temperature
        GPU Current Temp        : 33 C
    Processes                   : None
"""


@pytest.mark.parametrize(
    ("double", "pending", "codes"),
    [("0", "No", []), ("1", "No", ["ecc-uncorrected"]), ("0", "Yes", ["page-retirement-pending"])],
)
def test_names_of_old_drivers_are_known(double: str, pending: str, codes: list[str]) -> None:
    outcome = judge(VOLTA.format(double=double, pending=pending))
    assert [fault.code for fault in outcome.faults] == codes
    assert outcome.result is (CheckResult.FAULTS if codes else CheckResult.HEALTHY)


def test_a_product_without_nvlink_needs_no_fabric() -> None:
    apart = {"name": A10G, "state": "N/A", "status": "N/A", "summary": "N/A"}
    assert judge(query_text(4, dict.fromkeys(range(4), apart))).result is CheckResult.HEALTHY
