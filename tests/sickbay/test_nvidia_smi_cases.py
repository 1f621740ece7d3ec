"""The judgement of every recorded output of nvidia-smi in the shared cases, by the word after `expect:` beside it."""

from pathlib import Path

import pytest

from sickbay.checks import CheckOutcome, CheckResult
from sickbay.nvidia_smi.recorded import judge_nvidia_smi
from sickbay.recorded.context import context_of
from sickbay.recorded.model import Recorded, RecordedContext, RecordedKind

CASES = Path(__file__).parents[3] / "shared" / "cases" / "diagnostics" / "nvidia-smi"
FILES = sorted(path for path in CASES.glob("*") if path.suffix != ".expect")

pytestmark = pytest.mark.skipif(not FILES, reason="the shared cases lie beside a checkout, not in it")

NEEDS_THE_PRODUCT = "09-nvlink-s-a10-empty"
"""Zero bytes, whose product stands in no byte of it: it is judged beside a recording that tells the product."""

PARTS = {
    "01": {("gpu", "0000:07:00")},
    "02": {("gpu", "0000:10:1c")},
    "03": {("gpu", "unknown")},
    "05": {("host", "host")},
    "10": {("nvlink", "unknown")},
    "11": {("gpu", f"000{domain}:00:00") for domain in (1, 2, 4, 6, 8)},
    "19": {("gpu", "0000:0a:00"), ("gpu", "0000:0b:00")},
    "20": {("nvlink", "0000:0b:00")},
    "21": {("gpu", "0000:0a:00")},
    "23": {("gpu", "0000:61:00")},
    "24": {("gpu", "0000:83:00")},
    "25": {("gpu", "unknown")},
    "26": {("gpu", "unknown")},
    "27": {("gpu", "0000:24:00")},
    "28": {("gpu", "0000:05:00")},
    "29": {("gpu", "0000:91:00")},
}
"""The parts that have faults, where there are any, by the case's number."""


def record(path: Path) -> Recorded:
    return Recorded(kind=RecordedKind.NVIDIA_SMI, text=path.read_text(encoding="utf-8"), path=str(path))


def judge(path: Path) -> CheckOutcome:
    beside = [record(FILES[0])] if path.stem == NEEDS_THE_PRODUCT else []
    return judge_nvidia_smi(record(path), context_of([record(path), *beside]))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_case_leads_to_what_its_expectation_says(path: Path) -> None:
    lines = path.with_suffix(".expect").read_text(encoding="utf-8").splitlines()
    expected = next(line for line in lines if line.startswith("expect:")).removeprefix("expect:").strip()
    outcome = judge(path)
    assert outcome.result == CheckResult(expected.split("(")[0])
    assert {(part.kind, part.id) for part in (fault.component for fault in outcome.faults)} == PARTS.get(
        path.stem[:2], set()
    )


def test_zero_bytes_alone_are_unknown() -> None:
    (path,) = (path for path in FILES if path.stem == NEEDS_THE_PRODUCT)
    assert judge_nvidia_smi(record(path), RecordedContext()).result is CheckResult.UNKNOWN


@pytest.mark.parametrize("number", ["07", "08", "13", "14", "15", "17", "18", "22"])
def test_no_healthy_case_is_healthy_when_most_of_it_is_lost(number: str) -> None:
    """Not cut at a half, which is the end of a GPU in an output of links that tells no number of GPUs."""
    (path,) = (path for path in FILES if path.stem.startswith(number))
    whole = record(path)
    cut = whole.model_copy(update={"text": whole.text[: len(whole.text) * 4 // 9]})
    assert judge_nvidia_smi(cut, RecordedContext()).result is CheckResult.UNKNOWN
