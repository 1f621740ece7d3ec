"""Builds the C programs of a simulated host, once per version of their sources.

Called when a simulation starts (`simulator.process`) and by tests. The results lie in the user's cache, under the hash
of the sources: a second start builds nothing, and two that start at once do not disturb each other.
"""

import contextlib
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parent / "native"
FLAGS = ("-std=gnu11", "-O1", "-Wall", "-Wextra")
COMPILE_SECONDS = 120
"""Real time that one compilation may take on a busy machine."""


class NativeBuildError(Exception):
    """The programs cannot be built here; the message says why and what cures it."""


@dataclass(frozen=True)
class NativePrograms:
    """Where the built programs are."""

    folder: Path

    @property
    def nvml_library(self) -> Path:
        """The simulated `libnvidia-ml.so.1`."""
        return self.folder / "libnvidia-ml.so.1"

    @property
    def cuda_library(self) -> Path:
        """The simulated `libcuda.so.1`."""
        return self.folder / "libcuda.so.1"

    @property
    def nvidia_smi(self) -> Path:
        """The simulated `nvidia-smi`."""
        return self.folder / "nvidia-smi"

    @property
    def dcgmi(self) -> Path:
        """The simulated `dcgmi`."""
        return self.folder / "dcgmi"

    @property
    def reboot(self) -> Path:
        """Asks the machine that it runs on to reboot."""
        return self.folder / "reboot"

    @property
    def machine_init(self) -> Path:
        """Runs a program and leaves no descendant of it behind."""
        return self.folder / "machine-init"


PARTS = {
    "libnvidia-ml.so.1": (
        "nvml_shim.c",
        "nvml_readings.c",
        "nvml_memory.c",
        "nvml_links.c",
        "nvml_events.c",
        "gpu_state.c",
    ),
    "libcuda.so.1": ("cuda_shim.c", "cuda_memory.c", "gpu_state.c"),
    "nvidia-smi": ("nvidia_smi.c", "smi_query.c", "gpu_state.c", "host_control.c"),
    "dcgmi": ("dcgmi.c", "gpu_state.c"),
    "reboot": ("reboot.c", "gpu_state.c", "host_control.c"),
    "machine-init": ("machine_init.c",),
}


def build(cache: Path | None = None) -> NativePrograms:
    """The programs, built into `cache` (by default the user's cache folder) unless they are there already.

    Raises NativeBuildError where there is no Linux or no C compiler, or if compiling fails.
    """
    folder = (cache or default_cache()) / _version()
    if not folder.exists():
        _build_into(folder)
    return NativePrograms(folder)


def default_cache() -> Path:
    """The user's cache folder, or a private one among the temporary files where the home folder cannot be written."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    for folder in (home / "sickbay" / "simulator", Path(tempfile.gettempdir()) / f"sickbay-simulator-{os.getuid()}"):
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK):
                return folder
    raise NativeBuildError("no folder to build the simulator's programs in: set XDG_CACHE_HOME to one you can write to")


def _version() -> str:
    digest = hashlib.sha256(" ".join((*FLAGS, os.uname().machine, repr(sorted(PARTS.items())))).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _build_into(folder: Path) -> None:
    if sys.platform != "linux":
        raise NativeBuildError("the simulated GPU hosts need Linux: run the simulator there, or in a container")
    compiler = _compiler()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        for name, sources in PARTS.items():
            _compile(compiler, made / name, sources)
        try:
            made.rename(folder)
        except OSError:
            if not folder.exists():  # otherwise another process was quicker, with the same result
                raise


def _compiler() -> list[str]:
    named = os.environ.get("CC")
    if named:
        return shlex.split(named)
    found = next((path for path in map(shutil.which, ("cc", "gcc", "clang")) if path), None)
    if found is None:
        raise NativeBuildError("no C compiler found for the simulated NVML library: install gcc or clang, or set CC")
    return [found]


def _compile(compiler: list[str], target: Path, sources: tuple[str, ...]) -> None:
    shared = ("-shared", "-fPIC", "-fvisibility=hidden") if ".so" in target.name else ()
    command = [*compiler, *FLAGS, *shared, "-o", str(target), *(str(SOURCES / source) for source in sources)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeBuildError(f"cannot run the C compiler {compiler[0]}: {error}; set CC to one that works") from error
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[0]
        raise NativeBuildError(f"{compiler[0]} cannot build the simulator's {target.name}: {reason}")
