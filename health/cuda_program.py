"""The small program that the active check runs on a GPU, and what it must leave in memory.

Used by `health.cuda_child` alone. A GPU is only trusted with an answer that the host can work out by itself, for every
word and quickly, without any library for numbers: so the program advances a linear congruential generator in every
word of a buffer, which the host can jump ahead in by arithmetic on one very long integer. Beside it a floating-point
value is turned to and fro exactly; it comes back to itself after an even number of rounds and then leaves no trace.

The text is PTX of version 6.0 for compute capability 5.0, which the driver translates for whatever GPU there is: every
driver since CUDA 9 takes it, for GPUs from Maxwell to Blackwell and later (CUDA's documentation: PTX is forward
compatible).
"""

import functools
import random
from typing import Final

FUNCTION: Final = "sickbay_advance"
THREADS: Final = 256
"""Threads of a block."""
MAX_BLOCKS: Final = 4096
"""Blocks of a launch; each thread goes on to further words until the buffer is done."""

CHUNK: Final = 4 << 20
"""Bytes that are written and compared at once."""

_MULTIPLIER: Final = 1664525
_INCREMENT: Final = 1013904223
"""Constants of the generator (Numerical Recipes): of full period, so that a wrong number of rounds shows."""

_STRIDE: Final = 16396
"""Bytes by which the pattern moves from chunk to chunk, so that data at a wrong address shows."""

PROGRAM: Final = b"""
.version 6.0
.target sm_50
.address_size 64

.visible .entry sickbay_advance(.param .u64 buffer, .param .u32 words, .param .u32 rounds)
{
    .reg .pred %p<4>;
    .reg .b32 %r<12>;
    .reg .f32 %f<2>;
    .reg .b64 %rd<4>;

    ld.param.u64 %rd1, [buffer];
    ld.param.u32 %r1, [words];
    ld.param.u32 %r2, [rounds];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.u32 %r6, %r3, %r4, %r5;
    mov.u32 %r7, %nctaid.x;
    mul.lo.u32 %r7, %r7, %r4;
    setp.ge.u32 %p1, %r6, %r1;
    @%p1 bra DONE;
WORD:
    mul.wide.u32 %rd2, %r6, 4;
    add.u64 %rd3, %rd1, %rd2;
    ld.global.u32 %r8, [%rd3];
    and.b32 %r9, %r8, 4095;
    cvt.rn.f32.u32 %f1, %r9;
    mov.u32 %r10, 0;
ROUND:
    setp.ge.u32 %p2, %r10, %r2;
    @%p2 bra STORE;
    mad.lo.u32 %r8, %r8, 1664525, 1013904223;
    fma.rn.f32 %f1, %f1, 0fBF800000, 0f457FF000;
    add.u32 %r10, %r10, 1;
    bra ROUND;
STORE:
    cvt.rzi.u32.f32 %r11, %f1;
    xor.b32 %r11, %r11, %r9;
    xor.b32 %r8, %r8, %r11;
    st.global.u32 [%rd3], %r8;
    add.u32 %r6, %r6, %r7;
    setp.lt.u32 %p3, %r6, %r1;
    @%p3 bra WORD;
DONE:
    ret;
}
\0"""
"""`0fBF800000` is -1 and `0f457FF000` is 4095, as the twelve low bits that the value is made of can hold."""


def pattern(chunk: int) -> bytes:
    """What is written into the chunk of this number: bytes of no visible order, never the same in two chunks."""
    return _slice(_source(), chunk)


def advanced(chunk: int, rounds: int) -> bytes:
    """What the program must leave of `pattern(chunk)`. `rounds` is even."""
    return _slice(_advanced_source(rounds), chunk)


def advance(words: bytes, rounds: int) -> bytes:
    """Little-endian words of 32 bits, each advanced by an even number of rounds. The length is a multiple of eight."""
    multiplier, increment = _jump(rounds)
    lanes = len(words) // 8
    low = int.from_bytes((b"\xff\xff\xff\xff\0\0\0\0") * lanes, "little")
    increments = int.from_bytes(increment.to_bytes(8, "little") * lanes, "little")
    # Two words share a lane of 64 bits; each in a lane of its own, no product of it reaches the next one.
    both = int.from_bytes(words, "little")
    even = ((both & low) * multiplier + increments) & low
    odd = (((both >> 32) & low) * multiplier + increments) & low
    return (even | odd << 32).to_bytes(len(words), "little")


def _jump(rounds: int) -> tuple[int, int]:
    """Factor and summand that stand for many rounds at once."""
    multiplier, increment = 1, 0
    for _ in range(rounds):
        multiplier = multiplier * _MULTIPLIER % 2**32
        increment = (increment * _MULTIPLIER + _INCREMENT) % 2**32
    return multiplier, increment


@functools.cache
def _source() -> bytes:
    return random.Random(FUNCTION).randbytes(2 * CHUNK)


@functools.cache
def _advanced_source(rounds: int) -> bytes:
    return advance(_source(), rounds)


def _slice(source: bytes, chunk: int) -> bytes:
    start = chunk * _STRIDE % CHUNK
    return source[start : start + CHUNK]
