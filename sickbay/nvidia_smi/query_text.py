"""Reads the text of `nvidia-smi -q`, whole, filtered by `-d`, cut, or a fragment that somebody pasted.

Sections are told by indentation alone. What stands before the first GPU's header belongs to the machine; lines without
any header are a fragment of a GPU that nobody can name.
"""

import re
from typing import Final

from sickbay.nvidia_smi.blocks import MOST_GPUS, Block, Document, Value, key

_GPU: Final = re.compile(r"^\s*GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")
_SECTION: Final = re.compile(r"^[A-Za-z][\w /&.,-]*$")
_LEFT_OUT: Final = re.compile(
    r"^\s*(?:\[?\s*(?:\.{2,}|…)\s*\]?|\[?(?:snip|cut|truncated|omitted).*|--)\s*$", re.IGNORECASE
)
_ATTACHED: Final = re.compile(r"^Attached GPUs +:")
_INDENT: Final = 4
"""Columns by which a GPU's values stand in from its header."""
_BANNER: Final = re.compile(r"^\s*=+\s*NVSMI LOG\s*=+\s*$")
_SKIPPED: Final = ("mig_device", "mig_devices", "processes", "supported_clocks", "accounted_processes")
"""Sections that are lists: they tell nothing of the GPU's own health."""

_HEAD: Final = frozenset({"timestamp", "driver_version", "cuda_version", "attached_gpus"})
_FULL: Final = "product_name"
"""The first value of a GPU where no `-d` filters."""
_END: Final = "processes"


def looks_like_query(text: str) -> bool:
    """Whether some lines have the shape of this output."""
    return any(_BANNER.match(line) or _ATTACHED.match(line) or _is_indented_value(line) for line in text.splitlines())


def _is_indented_value(line: str) -> bool:
    valued = _valued(line)
    return valued is not None and valued[0] >= _INDENT and "|" not in line


class _Reader:
    """The state of one reading: the open block and the sections around the next line."""

    def __init__(self) -> None:
        self.head: dict[str, str] = {}
        self.blocks: list[Block] = []
        self.left_out = False
        self._pci: str | None = None
        self._values: list[Value] = []
        self._paths: set[str] = set()
        self._sections: list[tuple[int, str]] = []

    def read(self, line: str) -> None:
        if not line.strip() or _BANNER.match(line) or len(self.blocks) > MOST_GPUS:
            return
        if _LEFT_OUT.match(line):
            self.left_out = True
            return
        header = _GPU.match(line)
        if header:
            self.close()
            self._pci = header[1]
            return
        valued = _valued(line)
        if valued is not None:
            self._value(*valued)
        elif _SECTION.match(line.strip()):
            self._open(_depth(line), key(line))
        else:
            self.left_out = True

    def close(self) -> None:
        """End the block that is open, if any."""
        if self._pci is not None or self._values:
            named = self._pci is not None
            index = sum(1 for block in self.blocks if block.pci) if named else None
            self.blocks.append(Block(pci=self._pci or "", index=index, values=tuple(self._values)))
        self._pci, self._values, self._paths, self._sections = None, [], set(), []

    def _value(self, depth: int, name: str, text: str) -> None:
        if name in _HEAD and not depth:
            self.head[name] = text
            return
        self._leave(depth)
        path = "/".join((*(section for _, section in self._sections), name))
        if self._pci is None and path in self._paths:
            # The same value again, without a header: the fragment has come to the next GPU.
            sections = self._sections
            self.close()
            self._sections = sections
        if not path.startswith(_SKIPPED) or path == _END or name == "process_id":
            self._values.append(Value(path=path, text=text))
            self._paths.add(path)
        # A value may have parts below it, as `HW Slowdown` has.
        self._sections.append((depth, name))

    def _open(self, depth: int, name: str) -> None:
        self._leave(depth)
        self._sections.append((depth, name))

    def _leave(self, depth: int) -> None:
        while self._sections and self._sections[-1][0] >= depth:
            self._sections.pop()


def read_query_text(text: str) -> Document:
    """The document that the text holds, as far as it goes. Raises nothing."""
    reader = _Reader()
    for line in text.splitlines():
        reader.read(line)
    reader.close()
    attached = reader.head.get("attached_gpus", "")
    count = int(attached) if attached.isdecimal() else None
    return Document(
        attached=count,
        driver_version=reader.head.get("driver_version", ""),
        blocks=tuple(reader.blocks),
        gaps=tuple(_gaps(reader, count)),
        shows=_shows(reader.blocks),
    )


def _gaps(reader: _Reader, attached: int | None) -> list[str]:
    gaps = []
    named = [block for block in reader.blocks if block.pci]
    if attached is None:
        gaps.append("it does not tell how many GPUs are attached")
    elif attached != len(named):
        gaps.append(f"{attached} GPUs are attached, {len(named)} are shown")
    if reader.left_out:
        gaps.append("somebody left out lines")
    if any(not block.pci for block in reader.blocks):
        gaps.append("it is a fragment that does not name its GPU")
    if any(block.has(_FULL) and not _ended(block) for block in reader.blocks):
        gaps.append("a GPU's block is cut before its end")
    elif len({frozenset(_sections(block)) for block in named}) > 1:
        gaps.append("not all GPUs show the same sections")
    return gaps


def _ended(block: Block) -> bool:
    return block.has(f"{_END}/process_id") or bool(block.text(_END))


def _sections(block: Block) -> set[str]:
    """The sections of a block that every GPU of a machine prints, or none does."""
    return {value.path.split("/")[0] for value in block.values} - {"mig_device", _END}


def _shows(blocks: list[Block]) -> str:
    filtered = [block for block in blocks if not block.has(_FULL)]
    if not filtered:
        return ""
    return f"only {', '.join(sorted({name.replace('_', ' ') for block in filtered for name in _sections(block)}))}"


def _valued(line: str) -> tuple[int, str, str] | None:
    """Depth, name and text of a line `name : text`; None for a line of another shape.

    Cut by hand, since hostile lines make patterns with blanks around a colon slow.
    """
    name, colon, text = line.partition(":")
    if not colon or not name.strip() or (text and not text[0].isspace()):
        return None
    return _depth(line), key(name), text.strip()


def _depth(line: str) -> int:
    return len(line[: len(line) - len(line.lstrip())].expandtabs(_INDENT))
