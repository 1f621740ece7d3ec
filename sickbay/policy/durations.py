"""Durations as people write them in a policy file: `90s`, `30m`, `4h`, `7d`, `1h30m`.

A bare number is refused, since a reader of `soak: 15` cannot know the unit.
"""

import re
from datetime import timedelta
from typing import Final

UNITS: Final = {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1), "s": timedelta(seconds=1)}
LONGEST: Final = timedelta(days=3650)
"""Ten years: anything longer is a slip of the keyboard, and overflows a date when it is added to one."""

_PART: Final = re.compile(r"([0-9]{1,9})([dhms])")
_WORDS: Final = {"sec": "s", "second": "s", "min": "m", "minute": "m", "hr": "h", "hour": "h", "day": "d"}


class DurationError(ValueError):
    """Not a duration; the message says what is wrong and the cure."""


def parse_duration(text: str) -> timedelta:
    """The duration that `text` says. Raises DurationError."""
    parts = _PART.findall(text)
    if "".join(number + unit for number, unit in parts) != text or not text:
        raise DurationError(_what_is_wrong(text))
    units = [unit for _, unit in parts]
    if units != [unit for unit in UNITS if unit in units]:
        raise DurationError(f"'{text}' is out of order; write the larger unit first and each once, e.g. 1h30m")
    total = sum((int(number) * UNITS[unit] for number, unit in parts), timedelta(0))
    if total > LONGEST:
        raise DurationError(f"'{text}' is longer than ten years; write at most {LONGEST.days}d")
    return total


def format_duration(duration: timedelta) -> str:
    """A duration as `parse_duration` reads it; fractions of a second are shown as such."""
    if duration % UNITS["s"]:
        return f"{duration.total_seconds():g}s"
    parts = []
    for unit, length in UNITS.items():
        count, duration = divmod(duration, length)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _what_is_wrong(text: str) -> str:
    number, word = re.fullmatch(r"([0-9]*)\s*(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr] # matches all
    if number and not word:
        return f"'{text}' has no unit; write {number}s, {number}m, {number}h or {number}d"
    unit = _WORDS.get(word.lower().removesuffix("s"), word.lower())
    if number and unit in UNITS:
        return f"'{text}' is not written as a duration; write {number}{unit}"
    if number and unit in ("ms", "w", "week", "month", "y", "year"):
        return f"'{text}' has a unit that is not known; write it in s, m, h or d"
    return f"'{text}' is not a duration; write a whole number and a unit: 90s, 30m, 4h or 7d"
