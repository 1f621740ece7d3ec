"""AWS clients that are made when they are first used.

Used by `workers.controller`. A cluster without AWS has no region to give, and a missing region must fail the one call
that needs it, with its own clear error, and never the controller that contains nodes.
"""

import threading
from collections.abc import Callable
from typing import Any


class LateClient:
    """Stands for a client until its first use. Every use raises what making the client raises."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._made: Any = None
        self._lock = threading.Lock()  # activities run in threads, and making a client is not safe in several

    def __getattr__(self, name: str) -> Any:
        with self._lock:
            if self._made is None:
                self._made = self._make()
        return getattr(self._made, name)
