"""A burn-in with GPUs that exist in name only, whose NVML sees our own children as a real one does."""

import threading
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from health.active_burn_in import BurnIn
from health.active_cuda import Cuda
from health.active_usage import Usage
from health.settings import NodeSettings
from sickbay.active.answers import CudaAnswer, CudaStep
from sickbay.active.idleness import PodUse
from sickbay.gpu_readings import GpuAnswer, NvmlAnswer
from tests.sickbay.active.gpus import MOMENT

COUNT = 6


class SeenCuda(Cuda):
    """Does all work well; while it does, NVML lists a process on each GPU of it."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks: Counter[str] = Counter()
        self.busy: Counter[str] = Counter()
        self.overlaps: list[str] = []
        self._lock = threading.Lock()
        self.usage = Usage(self.nvml, PodUse)

    def ask(self, task: str, visible: Sequence[str], deadline: timedelta = timedelta(), **order: float) -> CudaAnswer:
        with self._lock:
            self.tasks[task] += 1
            self.busy.update(visible)
            self.overlaps += [name for name in visible if self.busy[name] > 1]
        # Others look at NVML meanwhile, and what they saw is kept for a while.
        self.usage.look(fresh_for=0)
        with self._lock:
            self.busy.subtract(visible)
        return CudaAnswer(step=CudaStep.CLOSE)

    def nvml(self) -> NvmlAnswer:
        with self._lock:
            gpus = tuple(
                GpuAnswer(
                    index=index,
                    uuid=f"GPU-{index}",
                    pci=f"00000000:5{index}:00.0",
                    process_count=self.busy[f"GPU-{index}"],
                )
                for index in range(COUNT)
            )
        return NvmlAnswer(count=COUNT, gpus=gpus)


def test_our_own_children_are_not_taken_for_somebody_elses_work() -> None:
    cuda = SeenCuda()
    gpus = cuda.usage.look().idle
    burnt = BurnIn(NodeSettings(node_name="node-a"), cuda, cuda.usage).run(gpus, MOMENT)
    assert cuda.tasks == {"copies": COUNT, "peer": COUNT * (COUNT - 1) // 2, "load": COUNT}
    assert all(finding.well for phase in burnt.phases for finding in phase)
    assert cuda.overlaps == []
    assert burnt.faults == ()
