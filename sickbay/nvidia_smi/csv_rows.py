"""Reads `nvidia-smi --query-gpu=... --format=csv` and its siblings: a row of names, then a row a GPU.

A row that does not fit its names is a gap. Of rows without names above them only the errors among their values can be
read. How many rows there
should be stands only in the column `count`, if somebody asked for it.
"""

import re
from typing import Final

from sickbay.nvidia_smi import cells
from sickbay.nvidia_smi.blocks import MOST_GPUS, Block, Document, Value, key

_NAME: Final = re.compile(r"^[a-z][\w]*(?:\.\w+)*(?: \[[^\]]+\])?$")
_OF_GPUS: Final = frozenset({"index", "name", "gpu_name", "uuid", "gpu_uuid", "pci_bus_id", "gpu_bus_id", "count"})
_OF_PROCESSES: Final = frozenset({"pid", "process_name"})
_ADDRESS: Final = re.compile(r"^[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]$")
_UNIT: Final = re.compile(r" \[[^\]]+\]$")
_FEWEST_COLUMNS: Final = 2


def looks_like_csv(text: str) -> bool:
    """Whether its first line has values between commas."""
    return text.strip().split("\n", 1)[0].count(",") >= _FEWEST_COLUMNS - 1


def read_csv(text: str) -> Document:
    """The document that the text holds. Raises nothing."""
    lines = [line for line in text.splitlines() if line.strip()][: MOST_GPUS + 1]
    names = _names(lines[0]) if lines else ()
    if not names:
        return Document(blocks=tuple(_nameless(line) for line in lines), gaps=("its columns have no names",))
    if _OF_PROCESSES & set(names):
        return Document(gaps=("it lists processes, which tell nothing of the GPUs",))
    rows = [[cell.strip() for cell in line.split(",")] for line in lines[1:]]
    fitting = [row for row in rows if len(row) == len(names)]
    blocks = tuple(_block(names, row) for row in fitting)
    counts = {cells.number(block.text("count")) for block in blocks} - {None}
    attached = counts.pop() if len(counts) == 1 else None
    return Document(
        attached=attached,
        driver_version=blocks[0].text("driver_version") if blocks else "",
        blocks=blocks,
        gaps=tuple(_gaps(rows, fitting, attached)),
    )


def _names(line: str) -> tuple[str, ...]:
    """The names of the columns as paths; empty if the line has no names."""
    printed = [cell.strip() for cell in line.split(",")]
    names = tuple(key(_UNIT.sub("", cell)) for cell in printed)
    known = _OF_GPUS | _OF_PROCESSES
    named = all(_NAME.match(cell) for cell in printed) and (known & set(names) or any("." in cell for cell in printed))
    return names if named else ()


def _block(names: tuple[str, ...], row: list[str]) -> Block:
    values = tuple(Value(path=name, text=cell) for name, cell in zip(names, row, strict=True))
    bare = Block(values=values)
    return Block(
        pci=bare.text("pci_bus_id", "gpu_bus_id"),
        index=cells.number(bare.text("index")),
        values=values,
    )


def _nameless(line: str) -> Block:
    """A row whose values nobody names: an address tells itself, and so does an error."""
    printed = [cell.strip() for cell in line.split(",")]
    return Block(
        pci=next((cell for cell in printed if _ADDRESS.match(cell)), ""),
        values=tuple(Value(path=f"column_{number}", text=cell) for number, cell in enumerate(printed, start=1)),
    )


def _gaps(rows: list[list[str]], fitting: list[list[str]], attached: int | None) -> list[str]:
    gaps = []
    if len(fitting) < len(rows):
        gaps.append("a row has not as many values as there are columns")
    if not rows:
        gaps.append("it has no row")
    if attached is None:
        gaps.append("it does not tell how many GPUs are attached, as the column count would")
    elif attached != len(rows):
        gaps.append(f"{attached} GPUs are attached, {len(rows)} are shown")
    return gaps
