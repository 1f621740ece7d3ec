"""Which devices the kubelet has given to pods, asked of its PodResources socket by a child with a deadline.

Called by `health.active` before a GPU is touched: a pod that has just been given one has no process on it yet. Without
a socket there is no Kubernetes here, and NVML alone decides; with one that does not answer, nobody knows.
"""

import stat
import sys
from datetime import timedelta
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from health.children import run_child
from sickbay.active.idleness import PodDevice, PodUse
from sickbay.model import Frozen

SOCKET: Final = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
DEADLINE: Final = timedelta(seconds=10)

# By its path: importing it would bring gRPC into the agent's own memory.
_CHILD: Final = Path(__file__).with_name("pod_resources_child.py")


class _Said(Frozen):
    devices: tuple[PodDevice, ...] | None = None
    failed: str = ""


def ask_kubelet(socket: Path = SOCKET, deadline: timedelta = DEADLINE) -> PodUse:
    """What pods have now. Blocking, at most for the deadline and a second; raises nothing."""
    try:
        mode = socket.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return PodUse()
    except OSError as error:
        return PodUse(kubelet=True, silent=f"{socket}: {error.strerror}")
    if not stat.S_ISSOCK(mode):
        return PodUse(kubelet=True, silent=f"{socket} is no socket")
    command = [sys.executable, "-I", str(_CHILD), str(socket)]
    result = run_child(command, deadline)
    try:
        said = _Said.model_validate_json(result.stdout)
    except ValidationError:
        return PodUse(kubelet=True, silent=result.words)
    if said.devices is None:
        return PodUse(kubelet=True, silent=said.failed)
    return PodUse(kubelet=True, devices=said.devices)
