"""The few functions of the CUDA driver library that the active check calls, by ctypes.

Used by `health.cuda_child` alone. ctypes, and no binding of others: cuda-python and cuda-bindings are tens of
megabytes on every node and follow one major version of CUDA, while we need twenty functions that every driver since
CUDA 11 exports under the same names. Each is looked up when it is called, so that what an old driver lacks costs only
its own question. Signatures and the `_v2` of names are those of cuda.h, of CUDA 12 and 13 alike; every
argument is given with its C type, so that none is cut to an int.
"""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Final

LIBRARY_MISSING: Final = -1
SYMBOL_MISSING: Final = -2
"""Codes of our own, beside CUDA's, which are positive: the library, or a function of it, is not there."""

_COMPUTE_MODE: Final = 20
"""CU_DEVICE_ATTRIBUTE_COMPUTE_MODE."""

_PCI_TEXT: Final = 32
_NAME_TEXT: Final = 128


class CudaError(Exception):
    """A call that failed; `code` is CUDA's own (CUresult) or one of ours."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call}: {code}")
        self.call = call
        self.code = code


class Cuda:
    """The loaded library. Every method raises CudaError if CUDA refuses."""

    def __init__(self, path: str = "") -> None:
        """Load it from a path, or by its name."""
        try:
            self._library = ctypes.CDLL(path or "libcuda.so.1")
        except OSError as error:
            raise CudaError(f"loading of {path or 'libcuda.so.1'}", LIBRARY_MISSING) from error

    def start(self) -> int:
        """Initialise, and count the GPUs that may be seen."""
        self._call("cuInit", c_uint(0))
        count = c_int()
        self._call("cuDeviceGetCount", byref(count))
        return count.value

    def device(self, ordinal: int) -> int:
        """The handle of one of the GPUs that may be seen."""
        device = c_int()
        self._call("cuDeviceGet", byref(device), c_int(ordinal))
        return device.value

    def pci(self, device: int) -> str:
        """PCI address, e.g. `0000:61:00.0`."""
        text = ctypes.create_string_buffer(_PCI_TEXT)
        self._call("cuDeviceGetPCIBusId", text, c_int(_PCI_TEXT), c_int(device))
        return text.value.decode(errors="replace")

    def name(self, device: int) -> str:
        """Product name."""
        text = ctypes.create_string_buffer(_NAME_TEXT)
        self._call("cuDeviceGetName", text, c_int(_NAME_TEXT), c_int(device))
        return text.value.decode(errors="replace")

    def compute_mode(self, device: int) -> int:
        """Who may use the GPU: 0 anybody, 2 nobody, 3 one process (CUcomputemode)."""
        mode = c_int()
        self._call("cuDeviceGetAttribute", byref(mode), c_int(_COMPUTE_MODE), c_int(device))
        return mode.value

    def open(self, device: int) -> c_void_p:
        """A new context on a GPU, current in this thread."""
        context = c_void_p()
        self._call("cuCtxCreate_v2", byref(context), c_uint(0), c_int(device))
        return context

    def enter(self, context: c_void_p) -> None:
        """Make a context the current one."""
        self._call("cuCtxSetCurrent", context)

    def close(self, context: c_void_p) -> None:
        """Destroy a context, with whatever memory is left in it."""
        self._call("cuCtxDestroy_v2", context)

    def wait(self) -> None:
        """Wait for all that was asked of the current context; errors of kernels show here."""
        self._call("cuCtxSynchronize")

    def memory(self) -> tuple[int, int]:
        """Bytes that are free, and in all, on the GPU of the current context."""
        free, total = c_size_t(), c_size_t()
        self._call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def allocate(self, size: int) -> int:
        """The address of new memory on the GPU."""
        address = c_uint64()
        self._call("cuMemAlloc_v2", byref(address), c_size_t(size))
        return address.value

    def free(self, address: int) -> None:
        """Give memory of the GPU back."""
        self._call("cuMemFree_v2", c_uint64(address))

    @contextmanager
    def pinned(self, size: int) -> Iterator[c_void_p]:
        """Memory of the host that the GPU reads and writes by itself, at the full speed of the bus."""
        address = c_void_p()
        self._call("cuMemHostAlloc", byref(address), c_size_t(size), c_uint(0))
        yield address
        # Not after an error: the context is then broken, and goes away with the process.
        self._call("cuMemFreeHost", address)

    def write(self, address: int, source: bytes | c_void_p, size: int) -> None:
        """Copy from the host to the GPU."""
        host = c_char_p(source) if isinstance(source, bytes) else source
        self._call("cuMemcpyHtoD_v2", c_uint64(address), host, c_size_t(size))

    def read(self, target: "ctypes.Array[ctypes.c_char] | c_void_p", address: int, size: int) -> None:
        """Copy from the GPU to the host."""
        self._call("cuMemcpyDtoH_v2", target, c_uint64(address), c_size_t(size))

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy within a GPU; it may still be under way when this returns."""
        self._call("cuMemcpyDtoD_v2", c_uint64(target), c_uint64(source), c_size_t(size))

    def can_reach(self, device: int, peer: int) -> bool:
        """Whether a GPU can read and write the memory of another one itself."""
        can = c_int()
        self._call("cuDeviceCanAccessPeer", byref(can), c_int(device), c_int(peer))
        return can.value != 0

    def reach(self, peer: c_void_p) -> None:
        """Let the current context use the memory of another GPU's context."""
        self._call("cuCtxEnablePeerAccess", peer, c_uint(0))

    def copy_to_peer(self, to: tuple[int, c_void_p], source: tuple[int, c_void_p], size: int) -> None:
        """Copy between GPUs, each given as address and context; it may still be under way when this returns."""
        (target, target_context), (origin, origin_context) = to, source
        self._call("cuMemcpyPeer", c_uint64(target), target_context, c_uint64(origin), origin_context, c_size_t(size))

    def function(self, program: bytes, name: str) -> c_void_p:
        """Translate a program for the GPU of the current context, and find a function in it."""
        module, function = c_void_p(), c_void_p()
        self._call("cuModuleLoadData", byref(module), c_char_p(program))
        self._call("cuModuleGetFunction", byref(function), module, c_char_p(name.encode()))
        return function

    def launch(self, function: c_void_p, blocks: int, threads: int, *arguments: "ctypes._SimpleCData[int]") -> None:
        """Start a function in so many threads; it is under way when this returns."""
        pointers = (c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
        grid = (c_uint(blocks), c_uint(1), c_uint(1))
        block = (c_uint(threads), c_uint(1), c_uint(1))
        self._call("cuLaunchKernel", function, *grid, *block, c_uint(0), c_void_p(), pointers, c_void_p())

    def _call(self, name: str, *arguments: object) -> None:
        try:
            function: Callable[..., int] = getattr(self._library, name)
        except AttributeError as error:
            raise CudaError(name, SYMBOL_MISSING) from error
        code = function(*arguments)
        if code:
            raise CudaError(name, code)
