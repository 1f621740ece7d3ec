"""What `nvidia-smi -q` and its csv sibling tell, in one form: for each GPU its values by path.

Made by `query_text`, `query_xml` and `csv_rows`; turned into readings by `readings`. A path is the names of sections
and key in lower case with underscores, joined by slashes: `ecc_errors/volatile/dram_uncorrectable`. Text and XML differ
in few names, which `readings` knows.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

from sickbay.model import Frozen
from sickbay.nvidia_smi import cells

MOST_GPUS: Final = 128
"""In one output; no machine has so many. What comes after them is not read."""


class Value(Frozen):
    """One printed value."""

    path: str
    text: str


class Block(Frozen):
    """What was printed of one GPU."""

    pci: str = ""
    """As printed; empty in a fragment without the GPU's header."""
    index: int | None = None
    """Counted by the tool, from 0; None in a fragment."""
    values: tuple[Value, ...] = ()

    def text(self, *paths: str) -> str:
        """The first value under one of these paths; empty if there is none."""
        return next((self._by_path[path] for path in paths if path in self._by_path), "")

    def has(self, *paths: str) -> bool:
        """Whether one of these paths was printed, with whatever value."""
        return any(path in self._by_path for path in paths)

    def under(self, section: str) -> Iterator[Value]:
        """The values of a section and of those within it; of a section without parts, its own."""
        return (value for value in self.values if value.path == section or value.path.startswith(f"{section}/"))

    @property
    def errors(self) -> tuple[Value, ...]:
        """The values that are errors."""
        return tuple(value for value in self.values if cells.error_in(value.text) is not None)

    @cached_property
    def _by_path(self) -> Mapping[str, str]:
        return {value.path: value.text for value in reversed(self.values)}


class Document(Frozen):
    """One output."""

    attached: int | None = None
    """GPUs that the tool counted; None if the output does not tell."""
    driver_version: str = ""
    blocks: tuple[Block, ...] = ()
    gaps: tuple[str, ...] = ()
    """Why it is not whole, in words."""
    shows: str = ""
    """What its form or its options leave out, in words; empty for the output of plain `nvidia-smi -q`."""


def key(name: str) -> str:
    """The part of a path for a printed name: `SRAM Uncorrectable SEC-DED` gives `sram_uncorrectable_sec_ded`."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
