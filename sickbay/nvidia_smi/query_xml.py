"""Reads `nvidia-smi -q -x`, whole or cut.

The text is hostile: no document type, no entity and no depth beyond the tool's own is accepted, so that a few lines
cannot grow into gigabytes. A cut document is read as far as it goes, and says so.
"""

import re
from collections.abc import Iterator
from typing import Final, cast
from xml.etree import ElementTree

from sickbay.nvidia_smi.blocks import MOST_GPUS, Block, Document, Value, key

_ROOT: Final = "nvidia_smi_log"
_DOCTYPE: Final = re.compile(r"<!DOCTYPE[^<>\[\]]*>")
_DEEPEST: Final = 20
"""Levels of elements; the tool's own documents have eight."""
_SKIPPED: Final = frozenset({"mig_devices", "supported_clocks", "accounted_processes"})


def looks_like_xml(text: str) -> bool:
    """Whether it is meant to be the tool's XML."""
    return f"<{_ROOT}" in text or text.lstrip().startswith("<?xml")


def read_query_xml(text: str) -> Document:
    """The document that the text holds, as far as it goes. Raises nothing."""
    plain = _DOCTYPE.sub("", text, count=1)
    if "<!" in plain:
        return Document(gaps=("its XML has declarations that nvidia-smi does not print",))
    start = max(plain.find("<?xml"), 0) if "<?xml" in plain else max(plain.find(f"<{_ROOT}"), 0)
    end = plain.rfind(f"</{_ROOT}>")
    whole = end >= 0
    walker = _Walker()
    try:
        for event, element in _events(plain[start : end + len(_ROOT) + 3] if whole else plain[start:]):
            walker.take(event, element)
    except ElementTree.ParseError as error:
        whole = False
        walker.gaps.append(f"its XML is broken: {error}")
    if not whole:
        walker.gaps.append("it is cut before its end")
    return walker.document()


def _events(text: str) -> Iterator[tuple[str, ElementTree.Element]]:
    parser: ElementTree.XMLPullParser[ElementTree.Element] = ElementTree.XMLPullParser(events=("start", "end"))
    # Fed in parts, so that what stands before an error is still told.
    for line in text.splitlines(keepends=True):
        parser.feed(line)
        yield from cast("Iterator[tuple[str, ElementTree.Element]]", parser.read_events())


class _Walker:
    """The state of one reading: the elements around, and the GPU that is open."""

    def __init__(self) -> None:
        self.gaps: list[str] = []
        self._around: list[str] = []
        self._head: dict[str, str] = {}
        self._blocks: list[Block] = []
        self._pci: str | None = None
        self._values: list[Value] = []

    def take(self, event: str, element: ElementTree.Element) -> None:
        if event == "start":
            self._around.append(key(element.tag))
            if len(self._blocks) >= MOST_GPUS:
                raise ElementTree.ParseError("more GPUs than any machine has")
            if len(self._around) > _DEEPEST:
                raise ElementTree.ParseError("elements within elements without an end")
            if self._around == [_ROOT, "gpu"]:
                self._pci, self._values = element.get("id", ""), []
            return
        path, text = self._around[1:], (element.text or "").strip()
        self._around.pop()
        if path == ["gpu"]:
            self._close()
        elif self._pci is not None:
            self._keep(path[1:], text, leaf=len(element) == 0)
        elif len(path) == 1:
            self._head[path[0]] = text
        if len(path) <= 2:
            element.clear()

    def document(self) -> Document:
        if self._pci is not None:
            self._close()
        attached = self._head.get("attached_gpus", "")
        count = int(attached) if attached.isdecimal() else None
        if count is None:
            self.gaps.append("it does not tell how many GPUs are attached")
        elif count != len(self._blocks):
            self.gaps.append(f"{count} GPUs are attached, {len(self._blocks)} are shown")
        return Document(
            attached=count,
            driver_version=self._head.get("driver_version", ""),
            blocks=tuple(self._blocks),
            gaps=tuple(self.gaps),
        )

    def _keep(self, path: list[str], text: str, *, leaf: bool) -> None:
        listed = path[:1] == ["processes"] and path[-1] not in ("processes", "pid")
        if path and leaf and path[0] not in _SKIPPED and not listed:
            self._values.append(Value(path="/".join(path), text=text))

    def _close(self) -> None:
        self._blocks.append(Block(pci=self._pci or "", index=len(self._blocks), values=tuple(self._values)))
        self._pci, self._values = None, []
