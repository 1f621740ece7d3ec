"""Reads the tables that `dcgmi` draws: two columns between borders, long texts cut hard at the column's width.

Called by the readers of its texts. Knows nothing of what the cells mean, only whether a table is drawn to its end.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

_BORDER: Final = re.compile(r"\+[-=+]+\+")
_SECTION: Final = re.compile(r"[|+]-+\s+(\S.*?)\s+-+[+|][-+|]*")
_MAX_WIDTH: Final = 512
"""Columns; dcgmi draws fewer than 100. A longer line is no row of a table, whatever it looks like."""


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
    lines = [line.strip() for line in text.split("\n") if line.lstrip()[:1] in ("|", "+")]
    heading = next((at for at, line in enumerate(lines) if "=" in line and _BORDER.fullmatch(line)), None)
    above = lines[: heading or 0]
    rows = tuple(_rows(line for at, line in enumerate(lines) if not (at < len(above) and _is_title(line))))
    if not rows:
        return None
    return Table(
        rows=rows,
        titles=tuple(line.strip("| ") for line in above if _is_title(line)),
        headed=heading is not None,
        closed=bool(_BORDER.fullmatch(lines[-1])) and "=" not in lines[-1],
    )


def _is_title(line: str) -> bool:
    return line.startswith("|") and line.endswith("|") and line.count("|") == 2


def _rows(lines: Iterable[str]) -> Iterator[TableRow]:
    for line in lines:
        name, middle, rest = line[1:].partition("|")
        if len(line) <= _MAX_WIDTH and (section := _SECTION.fullmatch(line)):
            yield TableRow(section[1], "", section=True)
        elif _BORDER.fullmatch(line):
            continue
        elif line.startswith("|") and middle and len(line) <= _MAX_WIDTH:
            yield TableRow(name.strip(), _cell(rest.removesuffix("|")))
        else:
            # A row without its second cell, or with a broken border: it is there, and says nothing.
            yield TableRow(line[:_MAX_WIDTH].strip(" |+\t\r"), "")


def _cell(inner: str) -> str:
    """A cell's text: one blank of margin on its left, two on its right, where it is wide enough to be whole."""
    return inner[1:-2] if inner.endswith("  ") else inner[1:]
