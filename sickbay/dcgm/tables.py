"""Reads the tables that `dcgmi` draws: two columns between borders, long texts cut hard at the column's width.

Called by the readers of its texts. Knows nothing of what the cells mean, only whether a table is drawn to its end.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

_BORDER: Final = re.compile(r"^\s*\+[-=+]+\+\s*$")
_SECTION: Final = re.compile(r"^\s*[|+]-+\s+(\S.*?)\s+-+[+|][-+|]*\s*$")
_ROW: Final = re.compile(r"^\s*\|(?P<name>[^|]*)\|(?P<value>.*?)\|?\s*$")
_TITLE: Final = re.compile(r"^\s*\|(?P<title>[^|]*)\|\s*$")


class TableRow(NamedTuple):
    """One line between two borders."""

    name: str
    """The first cell, without the blanks around it but with what indents it (`->`)."""
    value: str
    """The second cell from its first column on, as it stands: a text that goes on below may end in a blank."""
    section: bool = False
    """A heading drawn into a border; `name` is its word."""


class Table(NamedTuple):
    """The rows of everything in a text that looks like a table."""

    rows: tuple[TableRow, ...]
    titles: tuple[str, ...]
    """Lines of one cell: what the table is of."""
    headed: bool
    """It begins with its heading's border."""
    closed: bool
    """It ends with a border."""


def read_table(text: str) -> Table | None:
    """The table in a text; None if there is not one row. Lines that are no part of it are left out. Raises nothing."""
    lines = [line for line in text.split("\n") if line.lstrip()[:1] in ("|", "+")]
    heading = next((at for at, line in enumerate(lines) if "=" in line and _BORDER.match(line)), None)
    above = lines[: heading or 0]
    rows = tuple(_rows(line for line in lines if not (line in above and _TITLE.match(line))))
    if not rows:
        return None
    return Table(
        rows=rows,
        titles=tuple(found["title"].strip() for line in above if (found := _TITLE.match(line))),
        headed=heading is not None,
        closed=bool(_BORDER.match(lines[-1])) and "=" not in lines[-1],
    )


def _rows(lines: Iterable[str]) -> Iterator[TableRow]:
    for line in lines:
        if section := _SECTION.match(line):
            yield TableRow(section[1], "", section=True)
        elif _BORDER.match(line):
            continue
        elif row := _ROW.match(line):
            yield TableRow(row["name"].strip(), _cell(row["value"]))
        else:
            # A row without its second cell, or with a broken border: it is there, and says nothing.
            yield TableRow(line.strip(" |+\t\r"), "")


def _cell(inner: str) -> str:
    """A cell's text: one blank of margin on its left, two on its right, where it is wide enough to be whole."""
    return inner[1:-2] if inner.endswith("  ") else inner[1:]
