"""Pickles as inert data: nothing in them ever runs, whatever they hold."""

import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.checkpoints.dcp import parts_of
from sickbay.checkpoints.inert_pickle import Record, UnreadablePickleError, read
from tests.sickbay.checkpoints.layouts import dcp_metadata

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    | st.tuples(inner, inner),
    max_leaves=20,
)  # fmt: skip


class _Runs:
    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.made),)


@given(plain, st.integers(3, 5))
def test_plain_data_comes_out_as_it_went_in(value: Any, protocol: int) -> None:
    assert read(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_what_would_run_is_only_written_down(protocol: int, tmp_path: Path) -> None:
    made = tmp_path / "ran"
    found = read(pickle.dumps(_Runs(made), protocol))
    assert not made.exists()
    assert isinstance(found, Record)
    assert found.name.endswith("mkdir")


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(UnreadablePickleError):
        read(data)


@given(st.integers(0, 400))
def test_metadata_that_is_cut_is_refused(kept: int) -> None:
    data = dcp_metadata({"__0_0.distcp": 100, "__1_0.distcp": 7})
    assert parts_of(data) == {"__0_0.distcp": 100, "__1_0.distcp": 7}
    with pytest.raises(UnreadablePickleError):
        parts_of(data[: min(kept, len(data) - 1)])


def test_a_short_pickle_that_asks_for_much_memory_gets_none() -> None:
    bomb = b"\x80\x04" + b"(" * 10 + b"\x8d" + (2**40).to_bytes(8, "little") + b"x."
    with pytest.raises(UnreadablePickleError):
        read(bomb)
