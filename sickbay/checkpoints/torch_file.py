"""Files of `torch.save`: zips whose directory stands at their very end, with the object's pickle at their beginning.

Used by the formats that keep such files. A file that was cut has no directory at its end; one cut and written on is
caught by the directory's place. Files in torch's older form (before 1.6, or by its option) begin with a number of their
own and tell nothing of their length.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final

from sickbay.checkpoints.inert_pickle import Record, UnreadablePickleError, read
from sickbay.checkpoints.tree import Contents, Entry, Want

SUFFIXES: Final = (".pt", ".pth", ".bin", ".ckpt")
BEGINNING: Final = 32
ENDING: Final = 1024
"""torch writes no comment behind the directory's end, whose parts take 98 bytes."""
STATE: Final = 4 << 20
"""Enough of a file's beginning for the names and shapes of some ten thousand tensors."""
_ENTRY, _END, _END_64, _LOCATOR = b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_OLDER: Final = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


def ends(path: str) -> Want:
    """What tells whether a file is cut."""
    return Want(path=path, first=BEGINNING, last=ENDING)


def with_state(path: str) -> Want:
    """The same, with what its pickle says of step and world."""
    return Want(path=path, first=STATE, last=ENDING)


def problem(name: str, size: int, data: bytes) -> str:
    """What is wrong with a file, by its first and last bytes; empty if nothing is seen to be."""
    if size == 0:
        return f"{name} is empty"
    if data.startswith(b"PK"):
        return _zip_problem(name, size, data)
    if _OLDER in data[:16] or (data[:1] == b"\x80" and size <= len(data) and data.endswith(b".")):
        return ""
    return f"{name} is no file of torch.save: its beginning is lost"


def problems(files: Mapping[str, Entry], contents: Contents) -> list[str]:
    """The same for all of a folder's that were read."""
    found = (problem(name, files[name].size, data) for name, data in sorted(contents.items()) if _is_one(name))
    return [words for words in found if words]


def tellable(names: Iterable[str]) -> list[str]:
    """Those of some files that `torch.save` makes."""
    return [name for name in names if _is_one(name)]


def older_form(data: bytes) -> bool:
    """Whether a file tells nothing of its own length."""
    return not data.startswith(b"PK")


def state_of(data: bytes) -> dict[Any, Any] | None:
    """The object's own fields, inert; None if the beginning does not hold them all, or it is no mapping."""
    if len(data) < BEGINNING or not data.startswith(_ENTRY):
        return None
    method, name, extra = struct.unpack("<H16xHH", data[8:30])
    start = 30 + name + extra
    if method != 0 or not data[30 : 30 + name].endswith(b"/data.pkl"):
        return None
    try:
        content = read(data[start:STATE])
    except UnreadablePickleError:
        return None
    if isinstance(content, Record):
        content = content.items if content.items is not None else content.state
    return content if isinstance(content, dict) else None


def number(fields: Any, name: str) -> int | None:
    """A whole number among fields, be they a mapping's or a record's."""
    value = fields.field(name, 1 << 30) if isinstance(fields, Record) else None
    if isinstance(fields, dict):
        value = fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_one(name: str) -> bool:
    return name.endswith(SUFFIXES)


def _zip_problem(name: str, size: int, data: bytes) -> str:
    cut = f"{name} is cut: no directory is at its end"
    place = data.rfind(_END)
    if place < 0 or len(data) < place + 22:
        return cut
    length, start = struct.unpack("<II", data[place + 12 : place + 20])
    stands = size - len(data) + place
    # What points to a larger directory's end stands right before, and that end before it.
    if place >= 76 and data[place - 20 : place - 16] == _LOCATOR and data[place - 76 : place - 72] == _END_64:
        length, start = struct.unpack("<QQ", data[place - 36 : place - 20])
        stands -= 76
    elif 0xFFFFFFFF in (length, start):
        return cut
    return "" if start + length == stands else f"{name} is not whole: its directory is not where it should be"
