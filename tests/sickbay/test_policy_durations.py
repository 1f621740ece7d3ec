"""Durations as people write them."""

from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.policy.durations import DurationError, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", timedelta(seconds=90)),
        ("30m", timedelta(minutes=30)),
        ("4h", timedelta(hours=4)),
        ("7d", timedelta(days=7)),
        ("1h30m", timedelta(minutes=90)),
        ("0s", timedelta(0)),
    ],
)
def test_durations_are_read(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("30", "write 30s, 30m, 30h or 30d"),
        ("5min", "write 5m"),
        ("5 minutes", "write 5m"),
        ("90S", "write 90s"),
        ("2 hrs", "write 2h"),
        ("500ms", "write it in s, m, h or d"),
        ("2w", "write it in s, m, h or d"),
        ("1.5h", "write a whole number and a unit"),
        ("-5m", "write a whole number and a unit"),
        ("soon", "write a whole number and a unit"),
        ("", "write a whole number and a unit"),
        ("30m1h", "write the larger unit first"),
        ("1h1h", "each once"),
        ("99999d", "write at most 3650d"),
        ("999999999d", "write at most 3650d"),
    ],
)
def test_what_is_no_duration_is_refused_with_its_cure(text: str, cure: str) -> None:
    with pytest.raises(DurationError, match=cure):
        parse_duration(text)


@given(st.integers(0, 3650 * 86400))
def test_what_is_shown_can_be_written(seconds: int) -> None:
    duration = timedelta(seconds=seconds)
    assert parse_duration(format_duration(duration)) == duration


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(DurationError):
        assert parse_duration(text) >= timedelta(0)
