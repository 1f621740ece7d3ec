"""Reads a pickle as inert data: containers, text and numbers, and nothing that could run.

Used for PyTorch's flight-recorder dumps, which hold no more than that. Any instruction of a pickle that would import or
call something is refused, as is one that is too large; so a dump from a broken or hostile machine can do no harm.
"""

import io
import pickle
from typing import Any, Final

LARGEST: Final = 64 << 20
"""Bytes; a rank's recorder of 20,000 entries takes a few million."""


class UnsafePickleError(ValueError):
    """It is no pickle, too large, or would run something."""


class _Inert(pickle.Unpickler):
    """Refuses every name: without one, a pickle can only build containers and values."""

    def find_class(self, module: str, name: str) -> Any:
        """Never."""
        raise UnsafePickleError(f"it would import {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        """Never."""
        raise UnsafePickleError(f"it names something outside: {pid!r}")


def plain(data: bytes) -> Any:
    """What the pickle holds. Raises UnsafePickleError."""
    if len(data) > LARGEST:
        raise UnsafePickleError(f"{len(data)} bytes, and a dump has at most {LARGEST}")
    try:
        return _Inert(io.BytesIO(data)).load()
    except UnsafePickleError:
        raise
    except Exception as error:
        raise UnsafePickleError(f"it cannot be read: {type(error).__name__}") from error
