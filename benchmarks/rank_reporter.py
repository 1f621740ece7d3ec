"""What a training step pays for being reported, as a ratio to the step alone, in one run.

Run by people: `python benchmarks/rank_reporter.py [--steps N]`. A step here is some ten milliseconds of Python, less
than most real ones. The processor time of the whole process, the reporter's own thread included, is set against that of
the steps' work within it: both are of the same moments, so that a machine's moods meet both alike. Past the bound the
exit code is 1.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from health.rank_reporter import Reporter

BOUND: Final = 1.03
"""Of the step alone; what is above 1 is some hundred microseconds, whatever a step takes."""
WORK: Final = 1_000_000


def measure(steps: int, folder: Path) -> tuple[float, float]:
    """Processor seconds of a step's work, and of a step with its report."""
    reporter = Reporter(str(folder / "ml_job" / "1"), "ml/job", 1, {"rank": 0, "role": "worker", "gpu_uuid": "GPU-0"})
    work, began = 0.0, time.process_time()
    for number in range(steps):
        before = time.thread_time()
        sum(range(WORK))
        work += time.thread_time() - before
        reporter.step(number, compute_ms=1.5, collective_ms=0.5, data_ms=0.1, tokens=4096)
        reporter.checkpoint_requested()
    reporter.close(10)
    return work / steps, (time.process_time() - began) / steps


def main() -> int:
    """Measure, print, and judge against the bound."""
    parser = argparse.ArgumentParser(description="Time a training step and its report.")
    parser.add_argument("--steps", type=int, default=1000, help="steps (default: 1000)")
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory(prefix="sickbay-benchmark-") as folder:
        work, whole = measure(steps, Path(folder))
    print(f"step alone        {work * 1e6:8.1f} us")  # noqa: T201
    print(f"step and report   {whole * 1e6:8.1f} us")  # noqa: T201
    print(f"ratio             {whole / work:8.4f}    (bound {BOUND:g})")  # noqa: T201
    return 0 if whole / work <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
