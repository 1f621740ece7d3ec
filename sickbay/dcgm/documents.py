"""Finds JSON in what a program printed, whatever else it, its children or a shell printed around it.

Called by the readers of `dcgmi`'s JSON. The outermost objects that can be read are given; of a document that was cut
these are its whole parts, which a reader must not take for the whole (it looks for the root that it knows).
"""

import json
from typing import Final, NamedTuple

Json = dict[str, object]

_MAX_FAILURES: Final = 200
"""Braces that begin nothing readable, after which the rest is left unread: each may cost a walk to the text's end."""


class Document(NamedTuple):
    """One object, and where it begins in the text."""

    start: int
    content: Json


def documents(text: str) -> tuple[Document, ...]:
    """The outermost JSON objects of a text, in order. Raises nothing, on any text."""
    decoder = json.JSONDecoder()
    found: list[Document] = []
    failures = 0
    start = text.find("{")
    while start >= 0 and failures < _MAX_FAILURES:
        try:
            content, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            failures += 1
            end = start + 1
        else:
            found.append(Document(start, content))
        start = text.find("{", end)
    return tuple(found)


def member(value: object, key: str) -> object:
    """The member of an object; None where it is none, or has no such."""
    return value.get(key) if isinstance(value, dict) else None


def items(value: object) -> list[object]:
    """The elements of a list; nothing of anything else."""
    return value if isinstance(value, list) else []


def entries(value: object) -> list[tuple[str, object]]:
    """Names and members of an object; nothing of anything else."""
    return list(value.items()) if isinstance(value, dict) else []


def whole_number(value: object) -> int | None:
    """A whole number as DCGM writes it, as such or as a string; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 20:
        return int(value)
    return None


def words(value: object) -> str:
    """A string on one line; empty for anything else."""
    return " ".join(value.split()) if isinstance(value, str) else ""
