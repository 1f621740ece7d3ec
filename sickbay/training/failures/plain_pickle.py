"""Reads a pickle as inert data: containers, text and numbers, and nothing that could run.

Used by `flight_recorder`, whose dumps hold no more than that. The instructions are interpreted here, one by one, and
those that import, call or build anything are not among them; so there is nothing for a broken or hostile dump to reach.
Python's own unpickler is not used even with its names refused: one instruction makes it reserve memory by the gigabyte.
"""

import pickletools
from collections.abc import Callable
from typing import Any, Final

LARGEST: Final = 64 << 20
"""Bytes; a rank's recorder of 20,000 entries takes a few million."""
MOST_STEPS: Final = 6_000_000
"""Instructions; the recorder writes about two hundred for an entry with its stack."""
DEEPEST: Final = 64
"""Marks that may be open at once: a dump nests six containers."""

_LITERALS: Final = frozenset(
    {
        "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
        "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES",
        "BINBYTES8",
    }
)  # fmt: skip
_CONSTANTS: Final = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_TUPLES: Final = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MARK: Final = object()


class UnsafePickleError(ValueError):
    """It is no pickle, is cut or too large, or would run something."""


def plain(data: bytes) -> Any:
    """What the pickle holds. Raises UnsafePickleError."""
    if len(data) > LARGEST:
        raise UnsafePickleError(f"{len(data)} bytes, and a dump has at most {LARGEST}")
    try:
        return _run(data)
    except UnsafePickleError:
        raise
    except Exception as error:  # genops raises what its readers happen to raise
        raise UnsafePickleError(f"it cannot be read: {type(error).__name__}") from error


def _run(data: bytes) -> Any:
    machine = _Machine()
    for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        if count >= MOST_STEPS:
            raise UnsafePickleError(f"more than {MOST_STEPS} instructions")
        if opcode.name == "STOP":
            return machine.top()
        machine.take(opcode.name, argument)
    raise UnsafePickleError("it ends before its end")


class _Machine:
    """The stack and the memo of one reading."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._steps: dict[str, Callable[[], None]] = {
            "MARK": self._mark,
            "POP": self._pop,
            "POP_MARK": self._drop,
            "EMPTY_LIST": lambda: self._stack.append([]),
            "EMPTY_DICT": lambda: self._stack.append({}),
            "LIST": lambda: self._stack.append(self._since_mark()),
            "TUPLE": lambda: self._stack.append(tuple(self._since_mark())),
            "DICT": lambda: self._stack.append(_pairs(self._since_mark())),
            "APPEND": lambda: self._extend([self._stack.pop()]),
            "APPENDS": lambda: self._extend(self._since_mark()),
            "SETITEM": self._set_item,
            "SETITEMS": lambda: self._update(self._since_mark()),
            "MEMOIZE": lambda: self._remember(len(self._memo)),
            "PROTO": lambda: None,
            "FRAME": lambda: None,
        }

    def take(self, name: str, argument: Any) -> None:
        """One instruction."""
        if name in _LITERALS:
            self._stack.append(argument)
        elif name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name])
        elif (size := _TUPLES.get(name)) is not None:
            items = self._stack[-size:]
            del self._stack[-size:]
            self._stack.append(tuple(items))
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self._remember(int(argument))
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            self._stack.append(self._memo[int(argument)])
        elif (step := self._steps.get(name)) is not None:
            step()
        else:
            raise UnsafePickleError(f"it holds an instruction that a dump has no use for: {name}")

    def top(self) -> Any:
        """What the pickle came to."""
        value = self._stack[-1]
        if value is _MARK:
            raise UnsafePickleError("it comes to nothing")
        return value

    def _mark(self) -> None:
        if len(self._marks) >= DEEPEST:
            raise UnsafePickleError(f"more than {DEEPEST} containers within each other")
        self._marks.append(len(self._stack))
        self._stack.append(_MARK)

    def _pop(self) -> None:
        if self._stack.pop() is _MARK:
            self._marks.pop()

    def _since_mark(self) -> list[Any]:
        start = self._marks.pop()
        items = self._stack[start + 1 :]
        del self._stack[start:]
        return items

    def _drop(self) -> None:
        self._since_mark()

    def _extend(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, list):
            raise UnsafePickleError("it appends to what is no list")
        target.extend(items)

    def _set_item(self) -> None:
        value = self._stack.pop()
        self._update([self._stack.pop(), value])

    def _update(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, dict):
            raise UnsafePickleError("it sets items of what is no mapping")
        target.update(_pairs(items))

    def _remember(self, number: int) -> None:
        self._memo[number] = self._stack[-1]


def _pairs(items: list[Any]) -> dict[Any, Any]:
    keys, values = items[::2], items[1::2]
    # A key made of shared tuples would take for ever to hash.
    if len(keys) != len(values) or not all(isinstance(key, str | int) for key in keys):
        raise UnsafePickleError("it has a key that is no word, or no value for one")
    return dict(zip(keys, values, strict=True))
