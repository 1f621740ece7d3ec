"""Checkpoints of every layout: whole ones are known, and one that lost or had cut any of its files is never taken."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.checkpoints.model import CheckpointFormat, Level
from tests.sickbay.checkpoints.layouts import LAYOUTS, Files, dcp, megatron, steps, surveyed, without

POINTERS: Final = ("latest", "latest_checkpointed_iteration.txt")
"""Not part of a checkpoint: without them the folders tell, and people are told."""
UNTOLD_CUTS: Final = {
    "orbax": ("manifest.ocdbt", "d/0123"),
    "megatron": ("iter_0000100/.metadata",),
    "dcp": (),
}
"""Files whose right length nobody tells, and so only an empty one is known to be cut."""


def parts(layout: str) -> list[str]:
    return [name for name in LAYOUTS[layout]() if name not in POINTERS]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_whole_checkpoint_may_be_resumed_from(layout: str) -> None:
    found, odd = surveyed(LAYOUTS[layout]())
    assert [(each.step, each.may_resume, each.problems) for each in found] == [(100, True, ())]
    assert odd == ()
    assert str(found[0].format).replace("-", "_") in layout


@pytest.mark.parametrize(
    ("layout", "lost"), [(layout, name) for layout in LAYOUTS for name in parts(layout)], ids=lambda value: value
)
def test_without_any_one_of_its_files_it_is_not_taken(layout: str, lost: str) -> None:
    files = without(LAYOUTS[layout](), lost)
    found, _ = surveyed(files, CheckpointFormat(_format(layout)))
    assert not any(each.may_resume for each in found), found


@pytest.mark.parametrize(
    ("layout", "emptied"), [(layout, name) for layout in LAYOUTS for name in parts(layout)], ids=lambda value: value
)
def test_with_any_one_of_its_files_empty_it_is_not_taken(layout: str, emptied: str) -> None:
    files = {**LAYOUTS[layout](), emptied: b""}
    assert not any(steps(files, kind=CheckpointFormat(_format(layout))).values())


@given(st.sampled_from(sorted(LAYOUTS)), st.data())
def test_a_file_cut_anywhere_is_seen_wherever_something_tells_its_length(layout: str, data: st.DataObject) -> None:
    told = [name for name in parts(layout) if not name.endswith(UNTOLD_CUTS.get(layout, ()) or ("?",))]
    name = data.draw(st.sampled_from(told))
    files = LAYOUTS[layout]()
    kept = data.draw(st.integers(0, len(files[name]) - 1))
    files[name] = files[name][:kept]
    assert not any(steps(files, kind=CheckpointFormat(_format(layout))).values())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_older_whole_one_stays_usable_beside_a_newer_broken_one(layout: str) -> None:
    newer = LAYOUTS[layout](200)
    broken = {name: b"" for name in newer if name not in POINTERS}
    files: Files = {**LAYOUTS[layout](100), **newer, **broken}
    found = steps(files)
    assert found[100]
    assert not found.get(200, False)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_cannot_be_read_is_unknown_and_neither_whole_nor_absent(layout: str) -> None:
    files = LAYOUTS[layout]()
    asked = surveyed(files, unreadable=files)[0]
    assert [each.level for each in asked] == [Level.UNKNOWN]
    assert "cannot be read" in asked[0].problems[-1]


@given(st.dictionaries(st.text(min_size=1, max_size=30), st.binary(max_size=40), max_size=8))
def test_no_files_break_the_survey(files: Files) -> None:
    for kind in CheckpointFormat:
        surveyed(files, kind)


@given(st.sampled_from(sorted(LAYOUTS)), st.binary(max_size=200), st.data())
def test_no_content_breaks_the_judgement(layout: str, garbage: bytes, data: st.DataObject) -> None:
    files = LAYOUTS[layout]()
    files[data.draw(st.sampled_from(sorted(files)))] = garbage
    surveyed(files, CheckpointFormat(_format(layout)))


def test_a_root_that_is_one_checkpoint_itself_is_found() -> None:
    alone = {name.partition("/")[2]: data for name, data in dcp().items()}
    found, _ = surveyed(alone, CheckpointFormat.DCP)
    assert found == ()  # `run` bears no step
    assert steps({f"global_{name}": data for name, data in dcp().items()}) == {100: True}


def test_more_than_the_newest_are_listed_and_not_judged() -> None:
    files: Files = {}
    for step in range(1, 8):
        files |= dcp(step)
    levels = [each.level for each in surveyed(files, newest=2)[0]]
    assert levels == [Level.VERIFIED, Level.VERIFIED, *[Level.LISTED] * 5]


def test_looking_goes_on_behind_the_newest_until_one_can_be_used() -> None:
    files: Files = {}
    for step in range(1, 8):
        files |= dcp(step) if step < 3 else without(dcp(step), ".metadata")
    assert [step for step, usable in steps(files, newest=2).items() if usable] == [2]


def test_steps_are_compared_as_numbers() -> None:
    assert list(steps({**megatron(9), **megatron(1000), **megatron(10)})) == [1000, 10, 9]


def _format(layout: str) -> str:
    return layout.removesuffix("_by_rank").replace("_", "-")
