"""Reads a page of dcgm-exporter: Prometheus' text format, as far as DCGM's families use it.

Called by `sickbay.dcgm.exporter`. Pages come with whatever a shell printed before them, with samples far from their
HELP lines, and cut anywhere; what cannot be read is counted and not guessed.
"""

import re
from collections.abc import Iterator
from typing import Final

from sickbay.dcgm.blanks import is_blank
from sickbay.model import Frozen

_SAMPLE: Final = re.compile(
    r"^(?P<family>[A-Za-z_:][A-Za-z0-9_:]*)(?:\s*\{(?P<labels>.*)\}\s*|\s+)"
    r"(?P<value>[^\s{}]+)(?:\s+(?P<stamp>-?\d{1,18}))?\s*$"
)
_LABEL: Final = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_PREFIX: Final = "DCGM_"


class Sample(Frozen):
    """One line of one of DCGM's families."""

    family: str
    labels: dict[str, str]
    value: float | None
    """None for one of DCGM's blanks."""
    stamp: int | None = None
    """Milliseconds since 1970, where the exporter tells them."""

    @property
    def uuid(self) -> str:
        """Of the GPU, which for a MIG slice is its parent; empty for a switch or a processor."""
        return self.labels.get("UUID") or self.labels.get("uuid") or ""

    @property
    def sliced(self) -> bool:
        """Of a MIG slice, not of the whole GPU."""
        return bool(self.labels.get("GPU_I_ID"))


class Page(Frozen):
    """What a page has."""

    samples: tuple[Sample, ...] = ()
    troubles: tuple[str, ...] = ()


def read_page(text: str) -> Page:
    """The samples of DCGM's families on a page. Raises nothing, on any text."""
    lines = text.splitlines()
    torn = ""
    if lines and not text.endswith("\n"):
        # Without its end of line the last number may have lost digits.
        torn = lines.pop()
    samples = []
    unread = 0
    begun = False
    for line in lines:
        found = list(_samples(line))
        begun = begun or bool(found) or line.startswith("#")
        unread += begun and not found and bool(line.strip()) and not line.startswith("#") and line.lstrip() == line
        samples += found
    troubles = []
    if unread:
        troubles.append(f"{unread} lines cannot be read")
    if torn.strip():
        troubles.append("the page ends amid a line")
    ours = tuple(sample for sample in samples if sample.family.startswith(_PREFIX))
    return Page(samples=ours, troubles=tuple(troubles))


def _samples(line: str) -> Iterator[Sample]:
    found = _SAMPLE.match(line.strip())
    if found is None:
        return
    labels = _labels(found["labels"] or "")
    try:
        value = float(found["value"])
    except ValueError:
        return
    if labels is not None:
        stamp = int(found["stamp"]) if found["stamp"] else None
        yield Sample(family=found["family"], labels=labels, value=None if is_blank(value) else value, stamp=stamp)


def _labels(text: str) -> dict[str, str] | None:
    """The labels; None if any of them cannot be read."""
    labels: dict[str, str] = {}
    at = 0
    while at < len(text):
        found = _LABEL.match(text, at)
        if found is None:
            return None if text[at:].strip() else labels
        labels[found[1]] = found[2]
        at = found.end()
    return labels
