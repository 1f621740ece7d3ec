"""DCGM's numbers and words: each has one meaning, and each meaning a row in the catalogue."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.catalogue import lookup
from sickbay.dcgm.diagnostic import Finding
from sickbay.dcgm.errors import LAST_KNOWN, NO_MEASUREMENT, code_of, error_number
from sickbay.dcgm.exit_codes import FAULTS, words_of_exit
from sickbay.dcgm.exporter_families import LIMITS
from sickbay.faults import Rung


@pytest.mark.parametrize("severity", [None, *range(8)])
def test_every_number_and_severity_has_a_code_of_the_catalogue(severity: int | None) -> None:
    for number in range(LAST_KNOWN + 10):
        code = code_of(Finding(error_id=number, severity=severity))
        assert code == NO_MEASUREMENT or lookup(code).known, number


def test_the_exporters_limits_and_the_exits_have_codes_of_the_catalogue() -> None:
    assert all(lookup(limit.code).known for limit in LIMITS.values())
    assert all(lookup(code).known for code in FAULTS.values())


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("GPU 3 had uncorrectable memory errors and row remapping failed.", 80),
        ("GPU 3 had memory errors and row remappings are pen ding", 85),
        ("GPU had an uncontained error (XID 95)", 81),
        ("Detected XID 79 for GPU 0", 101),
        ("Detected fatal NvSwitch SXID 20034", 109),
        ("Detected nonfatal errors on NvSwitch 2 link 4", 16),
        ("Detected fatal errors on NvSwitch 2 link 4", 15),
        ("There was an internal error during the test: 'row remapping failed'", 44),
        ("Thermal violations totaling 3.1 seconds started at 9.7 seconds into the te st for GPU 2", 40),
        ("words of a version to come", None),
    ],
)
def test_words_tell_the_number_also_where_a_column_has_cut_them(text: str, number: int | None) -> None:
    assert error_number(Finding(text=text)) == number


@given(st.text(), st.integers() | st.none(), st.integers() | st.none())
def test_no_finding_that_nobody_knows_leads_to_a_step_that_disrupts(
    text: str, error_id: int | None, severity: int | None
) -> None:
    if error_id is None or not 0 < error_id <= LAST_KNOWN:
        code = code_of(Finding(text="" if error_id is None else text, error_id=error_id, severity=None))
        assert code == NO_MEASUREMENT or not lookup(code).rung.disrupts or error_number(Finding(text=text)) is not None
    if error_id is not None and error_id > LAST_KNOWN:
        assert lookup(code_of(Finding(error_id=error_id, severity=severity))).rung is Rung.NONE


@given(st.integers())
def test_every_exit_code_has_words(code: int) -> None:
    assert words_of_exit(code)
