"""Flight-recorder dumps, as pickles that are never unpickled and as JSON; NCCL's report; an analyzer's text."""

import json
import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.training.failures.collectives import collectives_in, of_analysis
from sickbay.training.failures.flight_recorder import of_dump
from sickbay.training.failures.plain_pickle import UnsafePickleError, plain
from sickbay.training.failures.ras import of_ras, ranks_of_ras

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4) | st.tuples(inner, inner)
    ),
    max_leaves=20,
)

RAS = """NCCL version 2.27.3 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12080

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          4            1          8        8

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         4         8         8   RUNNING  MISMATCH

Errors
======

Warnings
========

#0-0 (9f00aa0012345678) MISMATCH
  Communicator ranks have different AllReduce operation counts
  {many} ranks have launched up to operation {far}
  {few} ranks have launched up to operation {near}
  Rank 4 -- GPU 0 managed by process 4711 on node 10.1.0.2
  Rank 5 -- GPU 1 managed by process 4712 on node 10.1.0.2
"""


def entry(sequence: int, state: str, group: str = "0", words: str = "default_pg", **values: Any) -> dict[str, Any]:
    """One record as FlightRecorder.hpp writes it."""
    fixed: dict[str, Any] = {
        "record_id": sequence,
        "pg_id": int(group),
        "process_group": (group, words),
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "op_id": sequence,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": 1_700_000_000_000_000_000 + sequence,
        "input_sizes": [[1024, 8]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[1024, 8]],
        "output_dtypes": ["BFloat16"],
        "state": state,
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": state == "completed",
        "timeout_ms": 600_000,
        "is_p2p": False,
        "frames": [{"name": "train_step", "filename": "train.py", "line": 12}],
    }
    return {**fixed, **values}


def dump(*entries: dict[str, Any], **values: Any) -> dict[str, Any]:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
    return {"version": "2.7", "pg_config": config, "pg_status": {}, "entries": list(entries), **values}


def as_pickle(content: Any) -> bytes:
    return pickle.dumps(content, protocol=2)


def as_json(content: Any) -> bytes:
    return json.dumps(content).encode()


@pytest.mark.parametrize("written", [as_pickle, as_json], ids=["pickle", "json"])
def test_a_dump_tells_where_a_rank_stands_in_each_group(written: Any) -> None:
    told = of_dump(
        written(
            dump(
                entry(7, "completed"),
                entry(8, "started", profiling_name="nccl:_all_gather_base"),
                entry(9, "scheduled"),
                entry(3, "completed", "5", "mesh_tp"),
            )
        ),
        rank=2,
    )
    assert told is not None
    default, inner = told
    assert (default.group, default.enqueued, default.started, default.completed) == ("default_pg", 9, 8, 7)
    assert (default.operation, default.size, default.group_rank) == ("_all_gather_base", "1024x8", (0, 1, 2, 3))
    assert (inner.group, inner.enqueued, inner.completed, inner.operation) == ("mesh_tp 5", 3, 3, "")


@pytest.mark.parametrize("counter", [12, "12"], ids=["pickle's", "json's"])
def test_a_group_whose_entries_were_overwritten_is_told_of_by_its_status(counter: int | str) -> None:
    status = {
        "last_enqueued_collective": counter,
        "last_started_collective": counter,
        "last_completed_collective": 11 if isinstance(counter, int) else "11",
    }
    (told,) = of_dump(as_json(dump(pg_status={"0": status})), 1) or ()
    assert (told.enqueued, told.started, told.completed) == (12, 12, 11)


def test_a_status_of_a_group_that_did_nothing_yet_tells_nothing() -> None:
    status = {"last_enqueued_collective": -1, "last_started_collective": -1, "last_completed_collective": -1}
    (told,) = of_dump(as_pickle(dump(pg_status={"0": status})), 1) or ()
    assert (told.enqueued, told.started, told.completed) == (None, None, None)


def test_old_dumps_with_other_names_are_read() -> None:
    old = {"entries": [{"seq_id": 4, "pg_id": 0, "profiling_name": "nccl:broadcast", "state": "scheduled"}]}
    (told,) = of_dump(as_pickle(old), 0) or ()
    assert (told.enqueued, told.operation) == (4, "broadcast")


def test_point_to_point_operations_do_not_count_as_collectives() -> None:
    (told,) = of_dump(as_pickle(dump(entry(5, "completed"), entry(90, "started", is_p2p=True))), 0) or ()
    assert told.enqueued == 5


def test_a_dump_without_any_collective_is_not_one_that_is_missing() -> None:
    assert of_dump(as_pickle(dump()), 0) == ()
    assert of_dump(b"", 0) is None
    assert of_dump(b"a log", 0) is None
    assert of_dump(b'{"some": "json"}', 0) is None


class Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("/tmp/a-dump-ran-code",)


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(Runs(), protocol=2),
        pickle.dumps(Runs(), protocol=4),
        pickle.dumps({"entries": [Runs()]}, protocol=5),
        b"cos\nsystem\n(S'true'\ntR.",
        b"ccopy_reg\n_reconstructor\n(cbuiltins\nobject\ncbuiltins\nobject\nNtR.",
        b"\x80\x02}\x82\x01.",
        b"\x80\x02Pid\n.",
        pickle.dumps({1, 2}, protocol=4),
    ],
    ids=["reduce", "reduce-4", "nested", "old", "object", "extension", "persistent", "set"],
)
def test_whatever_would_run_something_is_refused(data: bytes) -> None:
    with pytest.raises(UnsafePickleError):
        plain(data)
    assert not Path("/tmp/a-dump-ran-code").exists()


def shared_tuples(levels: int) -> bytes:
    """A few bytes whose value, followed everywhere, is of 2**levels parts; as a key it would be hashed for ever."""
    doubled = b"".join(b"q%ch%c\x86" % (n, n) for n in range(levels))
    return b"\x80\x02}K\x01" + doubled + b"K\x02s."


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02]r\xff\xff\xff\x7f.",
        b"\x80\x04" + b"(" * 100_000 + b".",
        shared_tuples(120),
        b"\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x80\x02\x8b\xff\xff\xff\x7f",
        b"I" + b"9" * 100_000 + b"\n.",
    ],
    ids=["memo", "marks", "shared", "long-text", "long-number", "many-digits"],
)
def test_a_bomb_costs_nothing(data: bytes) -> None:
    try:
        plain(data)
    except UnsafePickleError:
        return


@given(PLAIN, st.sampled_from([0, 1, 2, 3, 4, 5]))
def test_plain_data_comes_back_as_it_was(value: Any, protocol: int) -> None:
    assert plain(pickle.dumps(value, protocol=protocol)) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(UnsafePickleError):
        plain(data)
    of_dump(data, 0)


WHOLE = dump(entry(7, "completed"), entry(8, "started"), entry(3, "scheduled", "5", "mesh_tp"))


@given(st.sampled_from([as_pickle(WHOLE), as_json(WHOLE)]), st.data())
def test_a_dump_cut_or_broken_anywhere_breaks_nothing(data: bytes, draw: st.DataObject) -> None:
    at = draw.draw(st.integers(0, len(data) - 1))
    of_dump(data[:at], 0)
    of_dump(data[:at] + draw.draw(st.binary(min_size=1, max_size=3)) + data[at + 1 :], 0)


@given(PLAIN)
def test_no_shape_of_a_dump_breaks_its_reader(value: Any) -> None:
    for content in (value, {"entries": value}, {"entries": [value, {"process_group": value, "collective_seq_id": 1}]}):
        of_dump(as_pickle(content), 0)
        of_dump(as_pickle({"entries": [entry(1, "started", input_sizes=value)], "pg_config": value}), 0)
        of_dump(as_pickle({"entries": [], "pg_status": {"0": value}, "pg_config": {"0": value}}), 0)


def test_nccls_report_names_the_smaller_side_which_is_ahead_and_healthy() -> None:
    told = of_ras(RAS.format(many=6, far=640, few=2, near=641))
    assert {each.rank for each in told if each.enqueued == 640} == {0, 1, 2, 3, 6, 7}
    assert {each.rank for each in told if each.operation} == {4, 5}
    assert {each.node for each in ranks_of_ras(RAS.format(many=6, far=640, few=2, near=641))} == {"10.1.0.2"}


def test_a_communicator_of_a_part_of_the_job_has_other_numbers_and_is_left_out() -> None:
    assert of_ras(RAS.format(many=2, far=640, few=2, near=641)) == ()


@given(st.text(alphabet="#0- ()ab\nMISMATCHRank launchedupto operation123", max_size=300))
def test_no_text_breaks_the_reader_of_nccls_report(text: str) -> None:
    of_ras(RAS.split("#0-0")[0] + "#0-0 (ab) MISMATCH\n" + text)
    ranks_of_ras(text)


ANALYSIS = """Not all ranks joining collective, sequence number: 12
internal record id: 11
group info: 3:mesh_pp
collective: nccl:all_reduce
missing ranks: {2}
input sizes: [[4]]
world size: 4
expected ranks: {0, 1, 2, 3}
collective state: scheduled
"""
DIFFERENT = """Collective sequence number: 40 has errors
internal record id: 39
group info: 0:default_pg
collective: nccl:all_reduce
input sizes: [[4]]
expected ranks: {0, 1}
collective state: scheduled
error msg: Culprit rank 1; Error type: COLLECTIVE_TYPE_MISMATCH, Expected collective type: 'all_reduce' does not match
"""


def test_an_analyzers_text_tells_who_never_came() -> None:
    told = of_analysis(ANALYSIS)
    assert {each.rank for each in told if each.enqueued == 11} == {2}
    assert {each.rank for each in told if each.enqueued == 12} == {0, 1, 3}
    assert {each.group for each in told} == {"3:mesh_pp"}


def test_an_analyzers_text_may_tell_of_several_collectives() -> None:
    told = of_analysis(ANALYSIS + DIFFERENT)
    assert len(told) == 6
    assert len({each.operation for each in told if each.group == "0:default_pg"}) == 2


@given(st.text(max_size=300))
def test_no_text_breaks_the_readers_of_collectives(text: str) -> None:
    collectives_in(text)
    collectives_in("Not all ranks joining collective: sequence number: 1\n" + text)
