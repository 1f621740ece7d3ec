"""Reads a pickle of a library's own records without running or importing anything.

Used for the metadata of distributed checkpoints. Every name in the pickle becomes an inert record that only keeps what
it is given; so a checkpoint from a hostile writer can at worst be called unreadable.
"""

import io
import pickle
from typing import Any, Final

from sickbay.checkpoints.tree import SMALL

DEEPEST: Final = 200


class UnreadablePickleError(ValueError):
    """It is no pickle, or too large."""


class Record:
    """Whatever stands in the pickle under some name: its arguments and its state, inert."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: dict[Any, Any] = {}
        self.items: dict[Any, Any] = {}
        self.members: list[Any] = []

    def __call__(self, *arguments: Any) -> "Record":
        """A record that is called gives another."""
        return Record(*arguments)

    def __setstate__(self, state: Any) -> None:
        parts = state if isinstance(state, tuple) else (state,)
        for part in parts:
            if isinstance(part, dict):
                self.state.update(part)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items[key] = value

    def append(self, value: Any) -> None:
        """As a list's."""
        self.members.append(value)

    def extend(self, values: Any) -> None:
        """As a list's."""
        self.members.extend(values)

    def __hash__(self) -> int:
        return id(self)

    def field(self, name: str, position: int) -> Any:
        """A field by its name in the state, else by its place among the arguments."""
        if name in self.state:
            return self.state[name]
        return self.arguments[position] if len(self.arguments) > position else None


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:  # noqa: ARG002 - no name is ever looked up
        """An inert record, whatever the name."""
        return Record

    def persistent_load(self, pid: Any) -> Any:
        """An inert record: tensors stand outside of the pickle."""
        return Record(pid)


def read(data: bytes) -> Any:
    """What the pickle holds, names as records. Raises UnreadablePickleError."""
    if len(data) > SMALL:
        raise UnreadablePickleError(f"{len(data)} bytes are more than metadata ever has")
    try:
        return _Reader(io.BytesIO(data)).load()
    except Exception as error:
        raise UnreadablePickleError(f"it cannot be read ({type(error).__name__})") from error
