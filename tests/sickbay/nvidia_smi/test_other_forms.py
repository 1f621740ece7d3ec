"""The table, the list, the links, the topology, and the sentences between them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.checks import CheckResult
from sickbay.gpu_readings import KnownGpu
from sickbay.recorded.model import RecordedContext
from tests.sickbay.nvidia_smi.documents import A10G, H200, bus, csv_rows, pci, query_text, table, uuid
from tests.sickbay.nvidia_smi.judged import found, judge

ALL_ERR = dict.fromkeys(("name", "fan", "temp", "perf", "power", "util", "dram"), "ERR!")


def links(count: int, speeds: dict[int, str] | None = None, name: str = H200, lines: int = 18) -> str:
    """`nvidia-smi nvlink -s`; speeds replace those of links of the last GPU."""
    printed = []
    for index in range(count):
        printed.append(f"GPU {index}: {name} (UUID: {uuid(index)})")
        last = index == count - 1
        for link in range(lines):
            speed = (speeds or {}).get(link, "26.562 GB/s") if last else "26.562 GB/s"
            printed.append(f"\t Link {link}: {speed}")
    return "\n".join([*printed, ""])


def topology(pairs: dict[tuple[int, int], str] | None = None, gpus: int = 4, usual: str = "NV18") -> str:
    """`nvidia-smi topo -m` with one adapter."""
    names = [*(f"GPU{index}" for index in range(gpus)), "NIC0"]

    def cell(one: int, other: int) -> str:
        if one == other:
            return "X"
        if gpus in (one, other):
            return "NODE"
        return (pairs or {}).get((min(one, other), max(one, other)), usual)

    rows = [
        "\t".join([name, *(cell(one, other) for other in range(gpus + 1)), "0-47", "0", "N/A"])
        for one, name in enumerate(names)
    ]
    head = "\t".join(["", *names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])
    legend = "Legend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n\nNIC Legend:\n\n"
    return "\n".join([head, *rows, "", f"{legend}  NIC0: rdmap79s0", ""])


def test_a_whole_table_is_healthy_and_says_what_it_cannot_show() -> None:
    outcome = judge(table(8))
    assert outcome.result is CheckResult.HEALTHY
    assert "remapped rows" in outcome.why


def test_a_row_full_of_errors_is_a_gpu_that_does_not_answer() -> None:
    outcome = judge(table(8, {5: ALL_ERR}))
    assert found(outcome) == [("gpu-not-answering", pci(5))]


def test_one_cell_that_errs_is_a_sensors_trouble() -> None:
    outcome = judge(table(2, {1: {"fan": "ERR!"}}))
    assert outcome.result is CheckResult.UNKNOWN
    assert "GPU 1: fan speed reads ERR!" in outcome.why


def test_errors_in_the_tables_memory_cell_count() -> None:
    assert found(judge(table(2, {0: {"dram": "4"}}))) == [("ecc-uncorrected", pci(0))]


@pytest.mark.parametrize("whole", [table(3), topology()], ids=["table", "topology"])
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_no_table_and_no_matrix_that_is_cut_is_healthy(whole: str, data: st.DataObject) -> None:
    lines = whole.splitlines()
    assert judge("\n".join(lines[: data.draw(st.integers(0, len(lines) - 1))])).result is not CheckResult.HEALTHY


@given(kept=st.integers(1, 17))
def test_links_that_are_cut_within_a_gpu_are_not_healthy(kept: int) -> None:
    """A cut between two GPUs shows nothing, since the output has no number of them."""
    assert judge("\n".join(links(2).splitlines()[: 20 + kept])).result is CheckResult.UNKNOWN
    assert judge("\n".join(links(1).splitlines()[: 1 + kept])).result is CheckResult.UNKNOWN


def test_mig_devices_of_a_list_are_no_gpus() -> None:
    mig = "  MIG 1g.18gb     Device  {}: (UUID: MIG-5e0f2d1c-0000-5000-9000-00000000000{})"
    text = "\n".join([f"GPU 0: {H200} (UUID: {uuid(0)})", *(mig.format(index, index) for index in range(7))])
    outcome = judge(text)
    assert outcome.result is CheckResult.HEALTHY
    assert outcome.why.startswith("1 GPU listed with 7 MIG devices")


def test_a_list_that_skips_a_gpu_or_lacks_some_is_unknown() -> None:
    text = f"GPU 0: {H200} (UUID: {uuid(0)})\nGPU 2: {H200} (UUID: {uuid(2)})\n"
    assert judge(text).result is CheckResult.UNKNOWN
    alone = text.splitlines()[0]
    assert judge(alone, RecordedContext(expected_gpus=8)).result is CheckResult.UNKNOWN


def test_links_that_are_all_up_are_healthy() -> None:
    assert judge(links(8)).result is CheckResult.HEALTHY


def test_a_link_that_is_inactive_names_its_gpu_by_what_another_recording_tells() -> None:
    outcome = judge(links(2, {3: "<inactive>", 17: "<inactive>"}))
    assert found(outcome) == [("nvlink-down", "unknown")]
    assert f"GPU 1 ({uuid(1)}): NVLinks 3, 17 of 18" in outcome.faults[0].evidence[0]
    known = RecordedContext(gpus=(KnownGpu(index=1, uuid=uuid(1), pci=pci(1)),))
    assert found(judge(links(2, {3: "<inactive>"}), known)) == [("nvlink-down", pci(1))]


NO_LINKS = "GPU {index}: {name} (UUID: GPU-1)\nNVML: Unable to retrieve NVLink information as all links are inActive\n"


@pytest.mark.parametrize(
    ("index", "name", "result"),
    [
        (5, H200, CheckResult.FAULTS),
        (0, H200, CheckResult.UNKNOWN),
        (1, "NVIDIA A100-PCIE-40GB", CheckResult.NOT_APPLICABLE),
        (1, A10G, CheckResult.NOT_APPLICABLE),
        (1, "NVIDIA Something New", CheckResult.UNKNOWN),
    ],
)
def test_that_all_links_are_inactive_counts_where_the_product_always_has_them(
    index: int, name: str, result: CheckResult
) -> None:
    """Detection 8.16: a card without a bridge is no fault, and the only GPU of a virtual machine may be none."""
    assert judge(NO_LINKS.format(index=index, name=name)).result is result


def test_with_mig_links_are_off() -> None:
    text = f"GPU 0: {H200} (UUID: {uuid(0)})\nNvlink queries are not supported for Devices in MIG mode\n"
    assert judge(text).result is CheckResult.NOT_APPLICABLE


def test_counts_of_link_errors_are_told_and_a_line_left_out_leaves_them_open() -> None:
    lines = [f"GPU 0: {H200} (UUID: {uuid(0)})"]
    for link in range(18):
        lines += [f"\t Link {link}: Replay Errors: 0", f"\t Link {link}: CRC Errors: 0", ""]
    assert judge("\n".join(lines)).result is CheckResult.HEALTHY
    assert judge("\n".join([*lines[:20], "\t [...]", *lines[20:]])).result is CheckResult.UNKNOWN
    erring = [line.replace("Link 7: Replay Errors: 0", "Link 7: Replay Errors: 12") for line in lines]
    outcome = judge("\n".join(erring))
    assert found(outcome) == [("nvlink-errors", "unknown")]
    assert "link 7: Replay Errors 12" in outcome.faults[0].evidence[0]


def test_what_nvlink_5_corrects_is_no_error() -> None:
    counters = (
        "Tx packets: 1203",
        "FEC Errors - 0: 88123",
        "Symbol Errors: 4",
        "Effective BER: 15e-255",
        "Rx Errors: {}",
    )
    lines = [f"GPU 0: NVIDIA B200 (UUID: {uuid(0)})"]
    lines += [f"\t Link {link}: {counter}" for link in range(18) for counter in counters]
    assert judge("\n".join(lines).format(*[0] * 18)).result is CheckResult.HEALTHY
    assert found(judge("\n".join(lines).format(*[0] * 17, 3))) == [("nvlink-errors", "unknown")]


def test_no_output_is_judged_by_the_product_that_another_recording_tells() -> None:
    """`nvlink -s` prints nothing for a product without NVLinks, and nothing is nothing for any other."""
    assert judge("").result is CheckResult.UNKNOWN
    assert judge(" \n").result is CheckResult.UNKNOWN
    assert judge("", RecordedContext(products=(A10G,))).result is CheckResult.NOT_APPLICABLE
    assert judge("", RecordedContext(products=(H200,))).result is CheckResult.UNKNOWN


def test_gpus_that_are_all_joined_alike_are_healthy() -> None:
    assert judge(topology()).result is CheckResult.HEALTHY
    assert judge(topology(usual="NV12", gpus=8)).result is CheckResult.HEALTHY


@pytest.mark.parametrize("left", ["NV16", "SYS"])
def test_a_gpu_that_is_joined_worse_than_all_others_has_lost_links(left: str) -> None:
    outcome = judge(topology({(0, 2): left, (1, 2): left, (2, 3): left}))
    assert found(outcome) == [("nvlink-down", "unknown")]
    assert outcome.faults[0].evidence[0].startswith("GPU2")


def test_a_board_that_joins_its_gpus_in_pairs_is_no_fault() -> None:
    pairs = {(0, 2): "SYS", (0, 3): "SYS", (1, 2): "SYS", (1, 3): "SYS"}
    assert judge(topology(pairs, usual="NV4")).result is CheckResult.HEALTHY


def test_gpus_without_nvlinks_have_none_to_judge() -> None:
    assert judge(topology(usual="PHB")).result is CheckResult.NOT_APPLICABLE
    assert judge(topology(usual="PHB"), RecordedContext(products=(H200,))).result is CheckResult.UNKNOWN


@pytest.mark.parametrize(
    ("line", "code", "part"),
    [
        (
            "Unable to determine the device handle for GPU 0000:9A:00.0: GPU is lost.  Reboot the system to recover",
            "gpu-lost",
            "0000:9a:00",
        ),
        (
            "Unable to determine the device handle for GPU3: 0000:9A:00.0: Unknown Error",
            "gpu-not-answering",
            "0000:9a:00",
        ),
        ("Unable to determine the device handle for GPU0002:00:1F.0: Unknown Error", "gpu-not-answering", "0002:00:1f"),
        (
            "Unable to determine the device handle for gpu 0000:9A:00.0: GPU requires reset",
            "gpu-reset-required",
            "0000:9a:00",
        ),
        ("WARNING: infoROM is corrupted at gpu 0000:9A:00.0", "inforom-corrupted", "0000:9a:00"),
        ("GPU is lost", "gpu-lost", "unknown"),
    ],
)
def test_a_sentence_that_names_a_gpu_is_its_fault_alone_and_in_the_middle_of_rows(
    line: str, code: str, part: str
) -> None:
    assert found(judge(line)) == [(code, part)]
    head, *rows = csv_rows(2).splitlines()
    outcome = judge("\n".join([head, rows[0], line, rows[1]]))
    assert found(outcome) == [(code, part)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 575.57",
            "differ in version",
        ),
        ("Failed to initialize NVML: Driver Not Loaded", "not loaded"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "not loaded"),
        ("Failed to initialize NVML: Unknown Error", "container"),
        ("bash: nvidia-smi: command not found", "no nvidia-smi"),
        (
            "2 devices are currently being used by one or more other processes (e.g., Fabric Manager, CUDA).",
            "is still there",
        ),
        ("GPU 00000000:9A:00.0 was successfully reset.\nAll done.", "nothing of how it is"),
        ("No devices were found", "no GPU was seen"),
        ("hello", "can be read"),
    ],
)
def test_a_sentence_without_a_gpu_condemns_none_and_is_no_health(line: str, words: str) -> None:
    """Detection 8.25: a driver and a library that do not fit are software, and no GPU's fault."""
    outcome = judge(line)
    assert (outcome.result, outcome.faults) == (CheckResult.UNKNOWN, ())
    assert words in outcome.why


def test_no_devices_are_a_fault_where_another_recording_counts_some() -> None:
    assert found(judge("No devices were found", RecordedContext(expected_gpus=4))) == [("gpu-missing", "unknown")]


@pytest.mark.parametrize("text", [table(2), links(2), query_text(2), "No devices were found"])
def test_no_output_of_a_command_that_failed_is_healthy(text: str) -> None:
    outcome = judge(text, exit_code=9)
    assert outcome.result is CheckResult.UNKNOWN
    assert "exit code 9" in outcome.why
    assert found(judge(text, exit_code=15)) == [("gpu-lost", "unknown")]


def test_prompts_fences_and_colours_around_a_paste_are_passed_over() -> None:
    text = f"```\nroot@gpu-7:~# nvidia-smi -q\n{query_text(2)}\n```\n"
    assert judge(text).result is CheckResult.HEALTHY
    assert judge("\x1b[4m" + topology().replace("CPU", "CPU\x1b[0m", 1)).result is CheckResult.HEALTHY


@settings(deadline=None, max_examples=100)
@given(text=st.text(alphabet="GPU0123456789:.<>|+-= \n\tLinkNV[],/X", max_size=400))
def test_nothing_that_is_fed_raises_or_is_healthy(text: str) -> None:
    assert judge(text).result is not CheckResult.HEALTHY


@pytest.mark.parametrize(
    "text",
    [
        " " * 500_000,
        "    A" + " " * 500_000 + "b",
        "," * 500_000,
        "index, name\n" + "0, x\n" * 100_000,
        "    A B : 1\n" * 50_000,
        "| 0 " + "x " * 250_000,
    ],
    ids=["blanks", "wide", "commas", "rows", "values", "cells"],
)
def test_a_hostile_text_of_any_length_is_read_to_its_end(text: str) -> None:
    assert judge(text).result is not CheckResult.HEALTHY


def test_what_is_larger_than_any_output_is_not_read() -> None:
    outcome = judge(query_text(2) + "\n" * (5 << 20))
    assert outcome.result is CheckResult.UNKNOWN
    assert "larger than any output" in outcome.why


def test_an_address_is_told_alike_by_table_and_query() -> None:
    assert bus(0) in table(1)
    assert found(judge(table(1, {0: {"dram": "1"}}))) == found(judge(query_text(1, {0: {"dram": "1"}})))
