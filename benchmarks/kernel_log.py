"""How fast `sickbay diagnose` reads a large syslog, measured against `grep` on the same file in the same run.

Run by people and by CI: `python benchmarks/kernel_log.py [--bytes N]`. It makes a syslog of mostly other lines in a
temporary directory, times both programs as processes, start included, and prints the ratio and the peak memory. The
bound is 3 times grep's time; past it the exit code is 1. It needs `grep` and the size of the log twice over in memory
or on a fast disk, so that reading the file is not what is measured.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

BOUND: Final = 3.0
WORDS: Final = "|".join(
    (
        *("NVRM", "SXid", "AER", "EDAC", "nvme", "I/O error", "XFS", "EXT4-fs", "mlx5", "efa", "ena"),
        *("blocked for more than", "soft lockup", "oom-kill", "NEURON_HW_ERR"),
    )
)
ROUNDS: Final = 3
LINES_PER_FAULT: Final = 5000
PATTERN_LINES: Final = 20_000
"""Lines that are made and then repeated; few, since a process inherits the peak memory of the one that started it."""

_PROGRAMS = ("kubelet[1843]", "containerd[921]", "systemd[1]", "sshd[20417]", "kernel", "chronyd[702]")
_VOCABULARY = (
    *("started", "stopped", "session", "pulled", "image", "container", "probe", "succeeded", "failed", "with", "error"),
    *("retry", "volume", "mounted", "for", "pod", "in", "namespace", "default", "request", "took", "ms", "status"),
    *("network", "interface", "link", "address", "received", "from", "peer", "connection", "closed"),
)
_FAULTS = (
    "NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=trainer, Ch 00000010, MMU Fault: ENGINE GRAPHICS",
    "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 07 egress non-posted PRIV error (First)",
    "nvme nvme3: I/O 17 QID 4 timeout, aborting",
    "EDAC MC1: 1 CE memory read error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0 (channel:0 slot:0)",
)


class Run(NamedTuple):
    """One process, from start to end."""

    seconds: float
    peak_mebibytes: float


def make_syslog(path: Path, size: int) -> None:
    """Writes a syslog of at least this many bytes, the same every time."""
    chance = random.Random(20)
    lines = [_line(chance, number) for number in range(PATTERN_LINES)]
    pattern = "".join(lines).encode()
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(pattern)


def _line(chance: random.Random, number: int) -> str:
    stamp = f"Nov {1 + number % 28:2d} {number % 24:02d}:{number % 60:02d}:{number * 7 % 60:02d}"
    if number % LINES_PER_FAULT == 0:
        return f"{stamp} node-a kernel: [{number}.000001] {_FAULTS[number // LINES_PER_FAULT % len(_FAULTS)]}\n"
    words = " ".join(chance.choices(_VOCABULARY, k=chance.randint(6, 16)))
    return f"{stamp} node-a {chance.choice(_PROGRAMS)}: {words} id={chance.getrandbits(64):x}\n"


def measure(command: list[str], output: Path) -> Run:
    """The quickest of some runs. Raises RuntimeError if the command cannot do its work (exit code 2 or more)."""
    return min(_run_once(command, output) for _ in range(ROUNDS))


def _run_once(command: list[str], output: Path) -> Run:
    started = time.perf_counter()
    with output.open("wb") as file:  # a real file: grep stops at its first match when it writes to /dev/null
        process = subprocess.Popen(command, stdout=file)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode > 1:
        raise RuntimeError(f"{command[0]} ended with exit code {process.returncode}")
    return Run(seconds, usage.ru_maxrss / 1024)


def main() -> int:
    """Measures, prints, and judges against the bound."""
    parser = argparse.ArgumentParser(description="Time `sickbay diagnose` against grep.")
    parser.add_argument("--bytes", type=int, default=10**9, help="size of the syslog (default: 1 GB)")
    size = parser.parse_args().bytes
    sickbay = shutil.which("sickbay", path=str(Path(sys.executable).parent)) or "sickbay"
    with tempfile.TemporaryDirectory(prefix="sickbay-benchmark-") as folder:
        log = Path(folder) / "syslog"
        make_syslog(log, size)
        grep = measure(["grep", "-cE", WORDS, str(log)], Path(folder) / "output")
        ours = measure([sickbay, "diagnose", str(log)], Path(folder) / "output")
    ratio = ours.seconds / grep.seconds
    print(f"grep -cE          {grep.seconds:6.2f} s  {grep.peak_mebibytes:6.0f} MiB")  # noqa: T201
    print(f"sickbay diagnose  {ours.seconds:6.2f} s  {ours.peak_mebibytes:6.0f} MiB")  # noqa: T201
    print(f"ratio             {ratio:6.2f}    (bound {BOUND})")  # noqa: T201
    return 0 if ratio <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
