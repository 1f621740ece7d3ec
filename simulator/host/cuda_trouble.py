"""How a simulated GPU fails at work though NVML may call it well: what the simulated libcuda reads of it.

A part of `simulator.host.gpu.GpuTrouble`. The library itself is native/cuda_shim.c.
"""

from collections.abc import Iterable

from pydantic import ConfigDict, Field

from sickbay.model import Frozen


class CudaTrouble(Frozen):
    """How a GPU fails at work; of the defaults, one works well."""

    model_config = ConfigDict(extra="forbid")

    error: int = Field(default=0, ge=0)
    """CUDA's error number (CUresult), given by the call that such an error belongs to: 802 by the initialisation, 46 by
    the context, 2 by the allocation, 214 by reading, 719 by waiting for a kernel."""
    hangs: bool = False
    """A context on it is never finished."""
    wrong_memory: bool = False
    """What is read back is not what was written."""
    wrong_result: bool = False
    """A kernel computes something else."""
    copy_gbps: float = Field(default=0, ge=0)
    """GB/s of every copy; 0 is as fast as the machine that simulates."""
    peers_hang: tuple[int, ...] = ()
    """Indices of GPUs with which a copy between the two never ends."""
    peers_wrong: tuple[int, ...] = ()
    """Indices of GPUs to which copies arrive as other data."""
    compute_mode: int = 0
    """Who may compute: 0 anybody, 2 nobody, 3 one process."""

    def lines(self) -> list[str]:
        """The lines of the state file that tell it."""
        return [
            f"cuda_error={self.error}",
            f"cuda_hangs={self.hangs:d}",
            f"cuda_wrong_memory={self.wrong_memory:d}",
            f"cuda_wrong_result={self.wrong_result:d}",
            f"cuda_copy_gbps={self.copy_gbps:g}",
            f"cuda_peers_hang={_bits(self.peers_hang)}",
            f"cuda_peers_wrong={_bits(self.peers_wrong)}",
            f"compute_mode={self.compute_mode}",
        ]


def combine_cuda(troubles: Iterable[CudaTrouble]) -> CudaTrouble:
    """How a GPU works that has several troubles at once."""
    found = list(troubles)
    rates = [trouble.copy_gbps for trouble in found if trouble.copy_gbps]
    return CudaTrouble(
        error=max((trouble.error for trouble in found), default=0),
        hangs=any(trouble.hangs for trouble in found),
        wrong_memory=any(trouble.wrong_memory for trouble in found),
        wrong_result=any(trouble.wrong_result for trouble in found),
        copy_gbps=min(rates, default=0),
        peers_hang=tuple(sorted({peer for trouble in found for peer in trouble.peers_hang})),
        peers_wrong=tuple(sorted({peer for trouble in found for peer in trouble.peers_wrong})),
        compute_mode=max((trouble.compute_mode for trouble in found), default=0),
    )


def _bits(indices: tuple[int, ...]) -> int:
    return sum(1 << index for index in set(indices))
