"""What a child that puts a GPU to work may say (`health.cuda_child`), and what of it CUDA's numbers mean.

The numbers are CUDA's own (CUresult in cuda.h, the same from CUDA 11 to 13); negative ones are ours.
"""

from enum import StrEnum
from typing import Final

from sickbay.model import Frozen

LIBRARY_MISSING: Final = -1
SYMBOL_MISSING: Final = -2
"""As in `health.cuda_library`."""

OUT_OF_MEMORY: Final = 2
DEVICE_UNAVAILABLE: Final = 46
UNKNOWN_ERROR: Final = 999

MEMORY_ERRORS: Final = {214: "an uncorrectable ECC error", 226: "an error that was contained in the process"}
NVLINK_UNCORRECTABLE: Final = 220
KERNEL_ERRORS: Final = {
    700: "illegal address",
    702: "launch timeout",
    714: "hardware stack error",
    715: "illegal instruction",
    716: "misaligned address",
    717: "invalid address space",
    718: "invalid program counter",
    719: "launch failed",
}
"""What our program, which does none of it, can only be told by a GPU that errs."""
TRANSLATION_ERRORS: Final = (200, 209, 218, 221, 222, 223, 300, 301, 302, 303, 500)
"""The program could not be translated for the GPU: the driver's compiler is missing or switched off."""
FABRIC_NOT_READY: Final = (802, 919)
"""CUDA waits for the fabric manager, or found that it does not run."""
DRIVER_MISMATCH: Final = 803
MPS_ERRORS: Final = range(805, 811)

COMPUTE_PROHIBITED: Final = 2
"""Compute mode in which nobody may use a GPU."""


class CudaStep(StrEnum):
    """What a child was at; in the order of a test."""

    BEGIN = "begin"
    LOAD = "load"
    INIT = "init"
    DEVICE = "device"
    CONTEXT = "context"
    ALLOCATE = "allocate"
    WRITE = "write"
    READ = "read"
    COMPUTE = "compute"
    COPY = "copy"
    PEER = "peer"
    CLOSE = "close"

    @property
    def before_the_gpu(self) -> bool:
        """Nothing of a GPU has been touched yet: trouble is the host's or the container's."""
        return self in (CudaStep.BEGIN, CudaStep.LOAD)


class CudaFailure(Frozen):
    """A call that failed."""

    call: str
    code: int

    @property
    def words(self) -> str:
        """The call and its number, for people."""
        if self.code == LIBRARY_MISSING:
            return f"{self.call} failed: it is not there"
        if self.code == SYMBOL_MISSING:
            return f"this driver has no {self.call}"
        return f"{self.call} answers {self.code}"


class WrongData(Frozen):
    """Data that is not what it must be."""

    at: int
    """Byte of the buffer at which it begins."""
    bytes: int
    """Bytes that differ in that piece of four MiB."""
    expected: str
    found: str


class Rate(Frozen):
    """How fast one kind of copy was."""

    what: str
    gigabytes_per_second: float
    """10^9 bytes that arrived in a second."""


class CudaAnswer(Frozen):
    """What one child said, as far as it came."""

    step: CudaStep = CudaStep.BEGIN
    """The last one that it began."""
    failed: CudaFailure | None = None
    wrong: WrongData | None = None
    pci: str = ""
    """Address of the GPU that CUDA gave, e.g. `0000:61:00.0`."""
    compute_mode: int | None = None
    free_bytes: int | None = None
    """Free memory of the GPU with our context on it; None where it did not come that far."""
    total_bytes: int | None = None
    peer_access: bool | None = None
    """Whether two GPUs reach each other; None where it was not asked."""
    rates: tuple[Rate, ...] = ()
    passes: int = 0
    """Times that all of the memory was computed over and found right."""
    timed_out: bool = False
    silent: str = ""
    """Why there is no end, in words, where neither a failure nor wrong data is it."""
