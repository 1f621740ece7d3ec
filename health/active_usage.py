"""Who uses which GPU, as of a few seconds ago at most.

Used by the active check, which asks again right before it touches a GPU, and once more when somebody's work could
explain a failure. What is asked is NVML and the kubelet; the rule is `sickbay.active.idleness`.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from sickbay.active.idleness import IdleGpu, Idleness, PodUse, idleness
from sickbay.gpu_readings import NvmlAnswer

FRESH_SECONDS: Final = 3.0
"""Age up to which a look still counts right before a GPU is touched; each costs two short processes."""


class Usage:
    """Looks at who uses the GPUs; shared by the threads of one run."""

    def __init__(self, ask_nvml: Callable[[], NvmlAnswer], ask_kubelet: Callable[[], PodUse]) -> None:
        """Both are blocking, have deadlines of their own, and raise nothing."""
        self._ask_nvml = ask_nvml
        self._ask_kubelet = ask_kubelet
        self._lock = threading.Lock()
        self._looked_at = 0.0
        self._last = Idleness()
        self.starting = False
        """The driver was not there at the last look, as it is for minutes after a boot."""

    def look(self, fresh_for: float = FRESH_SECONDS) -> Idleness:
        """How it stands now, or stood at most so many seconds ago."""
        with self._lock:
            if not self._looked_at or time.monotonic() - self._looked_at > fresh_for:
                # The kubelet first: a pod that is given a GPU after that shows in NVML, if it is quick.
                use = self._ask_kubelet()
                answer = self._ask_nvml()
                self._last = idleness(answer, use)
                self.starting = answer.starting
                self._looked_at = time.monotonic()
            return self._last

    def forget(self) -> None:
        """Look anew the next time: the last look may have seen the children of our own that have ended since."""
        with self._lock:
            self._looked_at = 0.0

    def still_idle(self, gpu: IdleGpu, fresh_for: float = FRESH_SECONDS) -> bool:
        """Whether nobody has taken this GPU into use."""
        return gpu in self.look(fresh_for).idle
