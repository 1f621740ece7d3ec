"""The program that puts a GPU to work, in a process of its own that may hang or be killed at any call.

Started by `health.active_cuda`, by its path, with one order as JSON. It uses nothing but the standard library and the
driver's own libcuda, sees only the GPUs of its CUDA_VISIBLE_DEVICES, and says each step before it takes it, one JSON
object a line, so that a hang can be named. It judges nothing: wrong data and error numbers are told as they are.
"""

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable
from ctypes import c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from health.cuda_library import Cuda, CudaError
from health.cuda_program import CHUNK, FUNCTION, MAX_BLOCKS, PROGRAM, THREADS, advanced, pattern

LIBRARY: Final = "SICKBAY_CUDA_LIBRARY"
"""Environment name: path of libcuda.so.1 where it is not on the loader's own path."""

QUICK_ROUNDS: Final = 64
LOAD_ROUNDS: Final = 4096
"""Rounds of the program: with the latter a GPU computes for tens of milliseconds between two looks at the clock."""

_LOAD_BLOCK: Final = 64 * CHUNK
_COPIES: Final = 8
"""Copies that one bandwidth is measured over."""


class _WrongDataError(Exception):
    """Data came back as other data; said already."""


def say(**words: Any) -> None:
    """Say one thing, now."""
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Carry out the order; the line `end` tells that nothing was left out."""
    order = json.loads(sys.argv[1])
    try:
        say(step="load")
        cuda = Cuda(os.environ.get(LIBRARY, ""))
        say(step="init")
        count = cuda.start()
        say(count=count)
        TASKS[order["task"]](cuda, order)
    except CudaError as error:
        say(failed={"call": error.call, "code": error.code})
    except _WrongDataError:
        return
    else:
        say(end=True)


def quick(cuda: Cuda, order: dict[str, Any]) -> None:
    """Write a pattern into some memory, read it back, and compute with a known answer."""
    chunks = chunks_of(order)
    context = open_gpu(cuda, 0)
    address = allocate(cuda, len(chunks))
    say(step="write")
    write(cuda, address, chunks)
    say(step="read")
    compare(cuda, address, pattern, chunks)
    say(step="compute")
    function = cuda.function(PROGRAM, FUNCTION)
    advance(cuda, function, address, len(chunks), QUICK_ROUNDS)
    cuda.wait()
    compare(cuda, address, partial(advanced, rounds=QUICK_ROUNDS), chunks)
    say(step="close")
    cuda.free(address)
    cuda.close(context)


def copies(cuda: Cuda, order: dict[str, Any]) -> None:
    """Measure copies from and to the host and within the GPU, and verify what arrived."""
    chunks = chunks_of(order)
    size = len(chunks) * CHUNK
    context = open_gpu(cuda, 0)
    first, second = allocate(cuda, len(chunks)), allocate(cuda, len(chunks))
    say(step="copy")
    with cuda.pinned(size) as host:
        place = host.value or 0
        for chunk in chunks:
            ctypes.memmove(place + chunk * CHUNK, pattern(chunk), CHUNK)
        measure("host_to_device", size, lambda: cuda.write(first, host, size), cuda.wait)
        measure("device_to_device", size, lambda: cuda.copy(second, first, size), cuda.wait)
        ctypes.memset(place, 0, size)
        measure("device_to_host", size, lambda: cuda.read(host, second, size), cuda.wait)
        for chunk in chunks:
            compare_chunk(ctypes.string_at(place + chunk * CHUNK, CHUNK), pattern(chunk), chunk)
    say(step="close")
    cuda.close(context)


def peer(cuda: Cuda, order: dict[str, Any]) -> None:
    """Copy between two GPUs in both directions, each itself, and verify what arrived."""
    reachable = cuda.can_reach(cuda.device(0), cuda.device(1)) and cuda.can_reach(cuda.device(1), cuda.device(0))
    say(peer_access=reachable)
    if not reachable:
        return
    chunks = chunks_of(order)
    one = Place(open_gpu(cuda, 0), allocate(cuda, len(chunks)))
    other = Place(open_gpu(cuda, 1), allocate(cuda, len(chunks)))
    say(step="peer")
    for here, there in ((one, other), (other, one)):
        cuda.enter(here.context)
        cuda.reach(there.context)
    # Other data each way, so that what the first copy left does not pass for the second one's.
    copy_over(cuda, one, other, chunks)
    copy_over(cuda, other, one, range(chunks.stop, 2 * chunks.stop))
    say(step="close")
    for place in (one, other):
        cuda.close(place.context)


def load(cuda: Cuda, order: dict[str, Any]) -> None:
    """Keep a GPU computing in most of its memory for some seconds, and verify all of it after each pass."""
    context = open_gpu(cuda, 0)
    free, _ = cuda.memory()
    room = int(free * order["share"])
    chunks = range(max(min(room, _LOAD_BLOCK) // CHUNK, 1))
    blocks = [allocate(cuda, len(chunks)) for _ in range(max(room // (len(chunks) * CHUNK), 2))]
    say(step="write")
    source = blocks[0]
    write(cuda, source, chunks)
    function = cuda.function(PROGRAM, FUNCTION)
    answer = partial(advanced, rounds=LOAD_ROUNDS)
    end = time.monotonic() + order["seconds"]
    passes = 0
    while passes == 0 or time.monotonic() < end:
        say(step="compute")
        for block in blocks[1:]:
            cuda.copy(block, source, len(chunks) * CHUNK)
            advance(cuda, function, block, len(chunks), LOAD_ROUNDS)
        cuda.wait()
        compare(cuda, source, pattern, chunks)
        for block in blocks[1:]:
            compare(cuda, block, answer, chunks)
        passes += 1
    say(passes=passes)
    say(step="close")
    cuda.close(context)


TASKS: Final = {"quick": quick, "copies": copies, "peer": peer, "load": load}


@dataclass(frozen=True)
class Place:
    """Some memory on one GPU."""

    context: c_void_p
    address: int


def open_gpu(cuda: Cuda, ordinal: int) -> c_void_p:
    """Tell which GPU it is, and open a context on it."""
    say(step="device")
    device = cuda.device(ordinal)
    say(pci=cuda.pci(device), name=cuda.name(device), compute_mode=cuda.compute_mode(device))
    say(step="context")
    context = cuda.open(device)
    free, total = cuda.memory()
    say(free_bytes=free, total_bytes=total)
    return context


def chunks_of(order: dict[str, Any]) -> range:
    """The numbers of the chunks that the ordered number of bytes holds, at least one."""
    return range(max(order["bytes"] // CHUNK, 1))


def allocate(cuda: Cuda, chunks: int) -> int:
    """Memory on the GPU, for so many chunks."""
    say(step="allocate")
    return cuda.allocate(chunks * CHUNK)


def write(cuda: Cuda, address: int, chunks: range) -> None:
    """Fill memory with the pattern of these chunks."""
    for place, chunk in enumerate(chunks):
        cuda.write(address + place * CHUNK, pattern(chunk), CHUNK)


def advance(cuda: Cuda, function: c_void_p, address: int, chunks: int, rounds: int) -> None:
    """Start the program over some memory."""
    words = chunks * CHUNK // 4
    blocks = min(words // THREADS, MAX_BLOCKS)
    cuda.launch(function, blocks, THREADS, c_uint64(address), c_uint(words), c_uint(rounds))


def copy_over(cuda: Cuda, source: Place, target: Place, chunks: range) -> None:
    """Copy from GPU to GPU, measure it, and verify what arrived."""
    cuda.enter(source.context)
    write(cuda, source.address, chunks)
    size = len(chunks) * CHUNK
    to, origin = (target.address, target.context), (source.address, source.context)
    measure("peer", size, lambda: cuda.copy_to_peer(to, origin, size), cuda.wait)
    cuda.enter(target.context)
    cuda.wait()
    compare(cuda, target.address, pattern, chunks)


def measure(what: str, size: int, copy: Callable[[], None], wait: Callable[[], None]) -> None:
    """Tell the rate of a copy in GB/s (10^9 bytes that arrive in a second); the first copy is not counted."""
    copy()
    wait()
    begin = time.perf_counter()
    for _ in range(_COPIES):
        copy()
    wait()
    say(measured=what, gigabytes_per_second=size * _COPIES / (time.perf_counter() - begin) / 1e9)


def compare(cuda: Cuda, address: int, expected: Callable[[int], bytes], chunks: range) -> None:
    """Read memory back and hold it against what must be there. Raises _WrongDataError after telling where."""
    for place, chunk in enumerate(chunks):
        found = ctypes.create_string_buffer(CHUNK)
        cuda.read(found, address + place * CHUNK, CHUNK)
        compare_chunk(found.raw, expected(chunk), place)


def compare_chunk(found: bytes, expected: bytes, place: int) -> None:
    """Hold one chunk against what must be in it."""
    if found == expected:
        return
    wrong = [at for at in range(CHUNK) if found[at] != expected[at]]
    at = wrong[0]
    say(
        wrong={
            "at": place * CHUNK + at,
            "bytes": len(wrong),
            "expected": expected[at : at + 4].hex(),
            "found": found[at : at + 4].hex(),
        }
    )
    raise _WrongDataError


if __name__ == "__main__":
    main()
