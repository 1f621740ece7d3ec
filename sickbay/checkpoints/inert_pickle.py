"""Reads the pickles of checkpoints as inert data: nothing in them is imported, called or built.

Used for the metadata of distributed checkpoints and for the small part of a torch file that tells its step and its
world size. The instructions are interpreted here, one by one; a name in the pickle, and whatever is called or built
with it, becomes a record that only keeps what it is given. Python's own unpickler is not used even with its names
replaced: a short hostile file can make it reserve memory by the gigabyte, or hash for ever.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

from sickbay.checkpoints.tree import SMALL

Value = Any
"""Text, numbers, bytes, lists, tuples, dictionaries and records."""


class UnreadablePickleError(ValueError):
    """It is no pickle, is cut, is too large, or holds an instruction that no checkpoint has a use for."""


class Record:
    """Whatever stands in the pickle under some name: its arguments and its state, inert."""

    __slots__ = ("arguments", "items", "members", "name", "state")

    def __init__(self, name: str, arguments: Value = ()) -> None:
        self.name = name
        self.arguments: tuple[Value, ...] = arguments if isinstance(arguments, tuple) else ()
        # Made when they are needed: a large job's metadata holds a million records.
        self.state: dict[Value, Value] | None = None
        self.items: dict[Value, Value] | None = None
        self.members: list[Value] | None = None

    def build(self, state: Value) -> None:
        """Keep a state: a mapping of fields, or a pair of two."""
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, dict):
                self.state = {**self.state, **part} if self.state else part

    def field(self, name: str, position: int) -> Value:
        """A field by its name in the state, else by its place among the arguments; None if it has none."""
        if self.state is not None and name in self.state:
            return self.state[name]
        return self.arguments[position] if len(self.arguments) > position else None


def read(data: bytes) -> Value:
    """What the pickle at the beginning of the bytes holds. Raises UnreadablePickleError."""
    if len(data) > SMALL:
        raise UnreadablePickleError(f"{len(data)} bytes are more than metadata ever has")
    try:
        return _Machine(data).run()
    except UnreadablePickleError:
        raise
    except Exception as error:  # whatever a broken file makes of the stack
        raise UnreadablePickleError(f"it cannot be read ({type(error).__name__})") from error


class _Machine:
    """The stack, the memo and the place of one reading. Each instruction adds at most one reference or the bytes that
    it spells out, so memory stays in proportion to the file."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._stack: list[Value] = []
        self._below: list[list[Value]] = []
        self._memo: dict[int, Value] = {}

    def run(self) -> Value:
        data, steps = self._data, _STEPS
        while self._at < len(data):
            code = data[self._at]
            self._at += 1
            if code == _STOP:
                return self._stack.pop()
            step = steps.get(code)
            if step is None:
                raise UnreadablePickleError(f"it holds an instruction that it has no use for: {bytes([code])!r}")
            step(self)
        raise UnreadablePickleError("it is cut")

    def take(self, count: int) -> bytes:
        end = self._at + count
        if count < 0 or end > len(self._data):
            raise UnreadablePickleError("it is cut")
        piece = self._data[self._at : end]
        self._at = end
        return piece

    def number(self, layout: struct.Struct) -> int:
        value: int = layout.unpack(self.take(layout.size))[0]
        return value

    def line(self) -> str:
        end = self._data.index(b"\n", self._at)
        return self.take(end + 1 - self._at)[:-1].decode("latin-1")

    def push(self, value: Value) -> None:
        self._stack.append(value)

    def pop(self) -> Value:
        return self._stack.pop()

    def top(self) -> Value:
        return self._stack[-1]

    def mark(self) -> None:
        self._below.append(self._stack)
        self._stack = []

    def since_mark(self) -> list[Value]:
        items, self._stack = self._stack, self._below.pop()
        return items

    def remember(self, number: int) -> None:
        self._memo[number] = self._stack[-1]

    def memoize(self) -> None:
        self.remember(len(self._memo))

    def recall(self, number: int) -> None:
        self._stack.append(self._memo[number])

    def last(self, count: int) -> None:
        items = tuple(self._stack[-count:])
        if len(items) != count:
            raise UnreadablePickleError("it takes what is not there")
        del self._stack[-count:]
        self._stack.append(items)

    def append(self, values: list[Value]) -> None:
        target = self.top()
        if isinstance(target, Record):
            target.members = target.members or []
            target.members.extend(values)
        elif isinstance(target, list):
            target.extend(values)
        else:
            raise UnreadablePickleError("it appends to what is no list")

    def set_items(self, items: list[Value]) -> None:
        target = self.top()
        if isinstance(target, Record):
            target.items = target.items if target.items is not None else {}
        mapping = target.items if isinstance(target, Record) else target
        if not isinstance(mapping, dict) or len(items) % 2:
            raise UnreadablePickleError("it sets items of what is no mapping")
        mapping.update(_pairs(items))

    def set_item(self) -> None:
        value = self.pop()
        self.set_items([self.pop(), value])

    def named(self) -> None:
        name = self.pop()
        self.push(Record(f"{self.pop()}.{name}"))

    def call(self) -> None:
        arguments, function = self.pop(), self.pop()
        self.push(Record(function.name if isinstance(function, Record) else "", arguments))

    def call_with_names(self) -> None:
        fields = self.pop()
        self.call()
        self.top().build(fields)

    def build(self) -> None:
        state = self.pop()
        if not isinstance(self.top(), Record):
            raise UnreadablePickleError("it builds what is no record")
        self.top().build(state)

    def persistent(self) -> None:
        """A tensor's bytes stand outside of the pickle."""
        self.push(Record("", (self.pop(),)))


def _pairs(items: list[Value]) -> dict[Value, Value]:
    """A mapping. A key that is no word or number is one of its own: shared tuples would take for ever to hash."""
    return {
        key if isinstance(key, str | int | bytes) else Record("key", (key,)): value
        for key, value in zip(items[::2], items[1::2], strict=True)
    }


def _long(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


_BYTE, _SHORT, _INT = struct.Struct("<B"), struct.Struct("<H"), struct.Struct("<i")
_SIZE, _SIZE_8, _FLOAT = struct.Struct("<I"), struct.Struct("<Q"), struct.Struct(">d")
_STOP: Final = ord(".")
_BY_NAME: Final[dict[bytes, Callable[[_Machine], object]]] = {
    # Frame and protocol
    b"\x80": lambda m: m.take(1),
    b"\x95": lambda m: m.take(8),
    # Constants
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    # Numbers
    b"J": lambda m: m.push(m.number(_INT)),
    b"K": lambda m: m.push(m.number(_BYTE)),
    b"M": lambda m: m.push(m.number(_SHORT)),
    b"\x8a": lambda m: m.push(_long(m.take(m.number(_BYTE)))),
    b"G": lambda m: m.push(_FLOAT.unpack(m.take(8))[0]),
    # Text and bytes
    b"X": lambda m: m.push(m.take(m.number(_SIZE)).decode("utf-8", "surrogatepass")),
    b"\x8c": lambda m: m.push(m.take(m.number(_BYTE)).decode("utf-8", "surrogatepass")),
    b"\x8d": lambda m: m.push(m.take(m.number(_SIZE_8)).decode("utf-8", "surrogatepass")),
    b"B": lambda m: m.push(m.take(m.number(_SIZE))),
    b"C": lambda m: m.push(m.take(m.number(_BYTE))),
    b"\x8e": lambda m: m.push(m.take(m.number(_SIZE_8))),
    b"\x96": lambda m: m.push(m.take(m.number(_SIZE_8))),
    b"U": lambda m: m.push(m.take(m.number(_BYTE)).decode("latin-1")),
    b"T": lambda m: m.push(m.take(m.number(_SIZE)).decode("latin-1")),
    # Containers
    b"(": _Machine.mark,
    b"0": _Machine.pop,
    b"1": _Machine.since_mark,
    b"]": lambda m: m.push([]),
    b"}": lambda m: m.push({}),
    b")": lambda m: m.push(()),
    b"\x8f": lambda m: m.push(Record("builtins.set")),
    b"l": lambda m: m.push(m.since_mark()),
    b"t": lambda m: m.push(tuple(m.since_mark())),
    b"d": lambda m: m.push(_pairs(m.since_mark())),
    b"\x91": lambda m: m.push(Record("builtins.frozenset", tuple(m.since_mark()))),
    b"\x85": lambda m: m.last(1),
    b"\x86": lambda m: m.last(2),
    b"\x87": lambda m: m.last(3),
    b"a": lambda m: m.append([m.pop()]),
    b"e": lambda m: m.append(m.since_mark()),
    b"\x90": lambda m: m.append(m.since_mark()),
    b"s": _Machine.set_item,
    b"u": lambda m: m.set_items(m.since_mark()),
    # The memo
    b"q": lambda m: m.remember(m.number(_BYTE)),
    b"r": lambda m: m.remember(m.number(_SIZE)),
    b"\x94": _Machine.memoize,
    b"h": lambda m: m.recall(m.number(_BYTE)),
    b"j": lambda m: m.recall(m.number(_SIZE)),
    # Names, and what is done with them
    b"c": lambda m: m.push(Record(f"{m.line()}.{m.line()}")),
    b"\x93": _Machine.named,
    b"R": _Machine.call,
    b"\x81": _Machine.call,
    b"\x92": _Machine.call_with_names,
    b"b": _Machine.build,
    b"Q": _Machine.persistent,
}
_STEPS: Final = {ord(name): step for name, step in _BY_NAME.items()}
