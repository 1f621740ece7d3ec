"""The program of the active check: what its text does is what the host expects of it."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from health import cuda_library
from health.cuda_program import CHUNK, FUNCTION, PROGRAM, advance, advanced, pattern
from sickbay.active import answers
from tests.health.ptx_machine import PtxMachine

TEXT = PROGRAM.rstrip(b"\0").decode("ascii")


@pytest.mark.parametrize(("blocks", "threads"), [(1, 1), (2, 3), (3, 8), (9, 4)])
def test_the_program_leaves_the_known_answer_however_it_is_launched(blocks: int, threads: int) -> None:
    words = pattern(5)[:80]
    machine = PtxMachine(TEXT, bytearray(words + bytes(16)))
    machine.launch(blocks, threads, buffer=0, words=20, rounds=6)
    assert machine.memory[:80] == advance(words, 6)
    assert machine.memory[80:] == bytes(16), "it does not write beyond its buffer"


@given(st.lists(st.integers(0, 2**32 - 1), min_size=2, max_size=8).filter(lambda words: len(words) % 2 == 0))
def test_any_word_is_advanced_as_the_program_does_it(words: list[int]) -> None:
    data = struct.pack(f"<{len(words)}I", *words)
    machine = PtxMachine(TEXT, bytearray(data))
    machine.launch(1, 4, buffer=0, words=len(words), rounds=4)
    assert machine.memory == advance(data, 4)


def test_the_floating_point_part_leaves_no_trace_only_after_an_even_number_of_rounds() -> None:
    data = pattern(0)[:8]
    machine = PtxMachine(TEXT, bytearray(data))
    machine.launch(1, 1, buffer=0, words=2, rounds=3)
    assert machine.memory != advance(data, 3)


def test_the_program_ends_with_a_zero_and_has_the_function_that_is_launched() -> None:
    assert PROGRAM.endswith(b"}\n\0")
    assert f".visible .entry {FUNCTION}(.param .u64 buffer, .param .u32 words, .param .u32 rounds)" in TEXT


def test_chunks_differ_and_so_do_their_answers() -> None:
    assert len({pattern(chunk)[:64] for chunk in range(300)}) == 300
    assert len(pattern(299)) == len(advanced(299, 64)) == CHUNK
    assert advanced(7, 64)[:8] == advance(pattern(7)[:8], 64)


def test_child_and_rules_mean_the_same_by_codes_of_our_own() -> None:
    assert cuda_library.LIBRARY_MISSING == answers.LIBRARY_MISSING
    assert cuda_library.SYMBOL_MISSING == answers.SYMBOL_MISSING
