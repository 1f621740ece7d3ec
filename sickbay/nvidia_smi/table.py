"""Reads the table that plain `nvidia-smi` prints.

A GPU takes two or three lines between two borders. The table cannot show remapped rows, recovery actions or the fabric:
a good one is weak evidence, and says so. It is whole only with the table of processes below it, since a cut between two
GPUs cannot be seen otherwise.
"""

import re
from typing import Final

from sickbay.nvidia_smi import cells
from sickbay.nvidia_smi.blocks import MOST_GPUS, Block, Document, Value

_BORDER: Final = re.compile(r"^\s*(?:\+[-=+]+\+|\|[-=+]+\|)\s*$")
_HEAD: Final = re.compile(r"NVIDIA-SMI \S+.*Driver Version:\s*(\S+)")
_FIRST: Final = re.compile(r"^\s*(?P<index>\d+)\s+(?P<name>\S.*?)\s+(?P<persistence>On|Off|N/A|ERR!)\s*$")
_PLACE: Final = re.compile(r"^\s*(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s")
_SECOND: Final = re.compile(
    r"^\s*(?P<fan>\S+)\s+(?P<temperature>\S+)\s+(?P<state>\S+)\s+(?P<power>\S.*?)\s*/\s*\S.*$",
)
_OTHER_TABLE: Final = re.compile(r"^\s*\|\s*(?:MIG devices|Processes)\s*:")
_PROCESSES: Final = re.compile(r"^\s*\|\s*Processes\s*:", re.MULTILINE)
_COLUMNS: Final = 3
_SHOWS: Final = "no remapped rows, no recovery action and no fabric, which the table cannot show"


def looks_like_table(text: str) -> bool:
    """Whether it is drawn with borders as the tool draws them."""
    return any(_BORDER.match(line) for line in text.splitlines()) or _HEAD.search(text) is not None


def read_table(text: str) -> Document:
    """The document that the table holds, as far as it goes. Raises nothing."""
    head = _HEAD.search(text)
    gaps, blocks = [], []
    for row in _rows(text):
        block = _block(row)
        if block is None:
            gaps.append("a GPU's row cannot be read")
        else:
            blocks.append(block)
    lines = text.rstrip().splitlines()
    if head is None:
        gaps.append("the head of the table is missing")
    if not _PROCESSES.search(text):
        gaps.append("the table of processes is missing, so that the end cannot be told")
    elif not lines[-1].lstrip().startswith("+"):
        gaps.append("it is cut before its end")
    indices = [block.index for block in blocks]
    if indices != list(range(len(blocks))):
        gaps.append("the GPUs are not numbered through")
    return Document(driver_version=head[1] if head else "", blocks=tuple(blocks), gaps=tuple(gaps), shows=_SHOWS)


def _rows(text: str) -> list[list[list[str]]]:
    """The lines of each GPU, cut into columns."""
    rows: list[list[list[str]]] = []
    open_row: list[list[str]] = []
    for line in text.splitlines():
        if _OTHER_TABLE.match(line):
            break
        if _BORDER.match(line) or not line.strip():
            rows.append(open_row)
            open_row = []
        elif line.lstrip().startswith("|"):
            open_row.append(line.strip().strip("|").split("|"))
    rows.append(open_row)
    of_gpus = [row for row in rows if row and len(row[0]) == _COLUMNS and row[0][0].split()[:1] != ["GPU"]]
    return of_gpus[:MOST_GPUS]


def _block(row: list[list[str]]) -> Block | None:
    first, place = _FIRST.match(row[0][0]), _PLACE.match(row[0][1])
    second = _SECOND.match(row[1][0]) if len(row) > 1 and len(row[1]) == _COLUMNS else None
    if not (first and place and second):
        return None
    printed = {
        "name": first["name"],
        "persistence_mode": first["persistence"],
        "ecc_errors_uncorrected_volatile_total": row[0][2],
        "fan_speed": second["fan"],
        "temperature_gpu": second["temperature"],
        "pstate": second["state"],
        "power_draw": second["power"],
        "memory_used": row[1][1].split("/")[0],
        "utilization_gpu": (row[1][2].split() or [""])[0],
        "mig_mode_current": row[2][2] if len(row) > 2 and len(row[2]) == _COLUMNS else "N/A",
    }
    values = tuple(Value(path=path, text=text.strip()) for path, text in printed.items())
    return Block(pci=place["pci"], index=cells.number(first["index"]), values=values)
