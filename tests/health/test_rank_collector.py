import asyncio
import json
import os
import stat
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from health import rank_collector
from health.rank_collector import FOLDER_MODE, NoPageError, RankCollector
from health.rank_files import LINE_MOST, TailedFile
from sickbay.ranks.model import NodeRanks
from tests.eventually import eventually

MOST = 1 << 18


class Clock:
    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now


class Node:
    """A collector on a folder, and a pod that writes to it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "ranks"
        self.clock = Clock()
        self.collector = self.anew()

    def anew(self) -> RankCollector:
        return RankCollector(self.root, timedelta(minutes=1), "node-a", "boot-1", self.clock)

    def path(self, rank: int = 0, job: str = "ml/llama", attempt: int = 1) -> Path:
        path = self.root / job.replace("/", "_") / str(attempt) / f"rank-{rank}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def line(self, step: int, rank: int = 0, job: str = "ml/llama", attempt: int = 1, **more: object) -> str:
        at = self.clock.now.timestamp() - 100 + step
        told = {"job": job, "attempt": attempt, "place": {"rank": rank}, "step": step, "at": at, **more}
        return json.dumps(told) + "\n"

    def write(self, *steps: int, rank: int = 0, job: str = "ml/llama", attempt: int = 1) -> Path:
        path = self.path(rank, job, attempt)
        with path.open("a") as file:
            file.write("".join(self.line(step, rank, job, attempt, compute_ms=50) for step in steps))
        return path

    def last_steps(self) -> dict[tuple[str, int, int], int]:
        windows = self.collector.look().windows
        return {(each.job, each.attempt, each.place.rank): each.last_step for each in windows}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_the_page_tells_the_newest_window_of_every_rank(node: Node) -> None:
    node.write(*range(10), rank=0)
    node.write(*range(12), rank=1)
    node.write(*range(5), rank=0, job="ml/other", attempt=3)
    page = node.collector.look()
    assert (page.node, page.boot_id, page.window, page.unreadable) == ("node-a", "boot-1", timedelta(minutes=1), ())
    assert node.last_steps() == {("ml/llama", 1, 0): 9, ("ml/llama", 1, 1): 11, ("ml/other", 3, 0): 4}
    assert page.windows[0].step_ms == 1000
    assert page.windows[0].compute_ms == 50


def test_the_folder_is_made_so_that_pods_of_any_user_can_write(node: Node) -> None:
    old = os.umask(0o077)
    try:
        node.collector.look()
    finally:
        os.umask(old)
    assert stat.S_IMODE(node.root.stat().st_mode) == FOLDER_MODE


def test_a_folder_that_the_kubelet_has_made_is_opened_to_all(node: Node) -> None:
    node.root.mkdir(mode=0o755)
    node.collector.look()
    assert stat.S_IMODE(node.root.stat().st_mode) == FOLDER_MODE


def test_a_line_counts_only_once_it_is_whole(node: Node) -> None:
    path = node.write(1)
    with path.open("a") as file:
        file.write(node.line(2)[:30])
        file.flush()
        assert node.last_steps() == {("ml/llama", 1, 0): 1}
        file.write(node.line(2)[30:])
    assert node.last_steps() == {("ml/llama", 1, 0): 2}


def test_a_rotated_file_and_a_cut_one_are_read_on(node: Node) -> None:
    path = node.write(1, 2)
    node.collector.look()
    path.rename(path.with_name("rank-0.jsonl.old"))
    node.write(3)
    assert node.last_steps() == {("ml/llama", 1, 0): 3}
    path.write_text("")
    node.collector.look()
    node.write(4)
    assert node.last_steps() == {("ml/llama", 1, 0): 4}
    path.write_text(node.line(5))
    assert node.last_steps() == {("ml/llama", 1, 0): 5}


def test_an_agent_that_starts_anew_reads_what_is_there(node: Node) -> None:
    node.write(*range(50))
    node.collector.look()
    node.collector = node.anew()
    assert node.last_steps() == {("ml/llama", 1, 0): 49}


GARBAGE = {
    "bytes": b"\x00\xff\xfe{{{\n",
    "other JSON": b"[1, 2]\nnull\n7\n",
    "a number that is none": b'{"job":"ml/llama","attempt":1,"place":{"rank":0},"step":9,"at":NaN}\n',
    "a time beyond all": b'{"job":"ml/llama","attempt":1,"place":{"rank":0},"step":9,"at":1e300}\n',
    "a long line": b"x" * (2 * LINE_MOST) + b"\n",
    "half a long line": b"x" * (2 * LINE_MOST),
    "deep": b"[" * 4000 + b"\n",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_is_passed_over_and_what_follows_is_read(node: Node, garbage: bytes) -> None:
    path = node.write(1)
    node.collector.look()
    with path.open("ab") as file:
        file.write(garbage)
    assert node.last_steps() == {("ml/llama", 1, 0): 1}
    with path.open("a") as file:
        file.write("\n")
    node.write(2)
    assert node.last_steps() == {("ml/llama", 1, 0): 2}


def test_a_report_of_another_job_attempt_or_rank_than_its_file_is_none(node: Node) -> None:
    path = node.path(0)
    path.write_text(node.line(1, rank=1) + node.line(1, job="ml/other") + node.line(1, attempt=2))
    assert node.last_steps() == {}


def test_links_pipes_and_folders_in_a_files_place_are_told_and_not_followed(node: Node, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(node.line(7))
    node.path(0).symlink_to(secret)
    os.mkfifo(node.path(1))
    node.path(2).mkdir()
    node.write(1, rank=3)
    elsewhere = node.write(1, job="ml/elsewhere").parent.parent
    elsewhere.rename(tmp_path / "moved")
    elsewhere.symlink_to(tmp_path / "moved")
    page = node.collector.look()
    assert [window.place.rank for window in page.windows] == [3]
    assert [line.split(":")[0] for line in page.unreadable] == [f"ml_llama/1/rank-{rank}.jsonl" for rank in range(3)]


def test_a_folder_that_is_none_is_told(node: Node) -> None:
    node.root.write_text("")
    assert str(node.root) in node.collector.look().unreadable[0]


def test_the_newest_attempts_are_told_and_the_number_of_files_is_bounded(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_collector, "FILES_MOST", 5)
    for attempt in range(1, 8):
        for rank in range(3):
            node.write(1, rank=rank, attempt=attempt)
    assert sorted(node.last_steps()) == [
        ("ml/llama", attempt, rank) for attempt, rank in [(6, 0), (6, 1), (7, 0), (7, 1), (7, 2)]
    ]


def test_a_rank_that_wrote_nothing_for_an_hour_is_not_told_any_more(node: Node) -> None:
    node.write(1)
    node.clock.now += timedelta(minutes=59)
    assert len(node.collector.look().windows) == 1
    node.clock.now += timedelta(minutes=2)
    assert node.collector.look().windows == ()


def test_attempts_that_are_over_for_a_day_are_removed_and_nothing_else(node: Node, tmp_path: Path) -> None:
    old, young = node.write(1), node.write(1, attempt=2)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("")
    (old.parent / "link").symlink_to(tmp_path / "kept")
    (node.root / "something else").mkdir()
    long_ago = (node.clock.now - timedelta(days=2)).timestamp()
    for path in (old, old.parent, tmp_path / "kept", node.root / "something else"):
        os.utime(path, (long_ago, long_ago))
    os.utime(old.parent / "link", (long_ago, long_ago), follow_symlinks=False)
    node.collector.look()
    assert not old.parent.exists()
    assert young.exists()
    assert (tmp_path / "kept" / "file").exists()
    assert (node.root / "something else").exists()


async def test_the_page_is_as_fresh_as_its_reader_needs(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_collector, "FRESH_SECONDS", 0)
    running = asyncio.create_task(node.collector.run())
    node.write(1)

    async def told() -> bool:
        return [window.last_step for window in (await page_of(node)).windows] == [2]

    node.write(2)
    monkeypatch.setattr(rank_collector, "FRESH_SECONDS", 1)
    await eventually(told)
    running.cancel()


async def page_of(node: Node) -> NodeRanks:
    return NodeRanks.model_validate_json(await node.collector.page())


async def test_a_disk_that_hangs_gives_no_page_rather_than_an_old_one(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> NodeRanks:
        raise OSError("as one that hangs, which ends no look either")

    monkeypatch.setattr(node.collector, "look", fails)
    with pytest.raises(NoPageError, match="does not answer"):
        await node.collector.page()


@given(st.lists(st.binary(max_size=300), max_size=20), st.integers(1, 64))
def test_whatever_is_written_in_whatever_pieces_lines_come_whole_and_once(pieces: list[bytes], most: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.touch()
        tail = TailedFile(path)
        got: list[bytes] = []
        for piece in pieces:
            with path.open("ab") as file:
                file.write(piece)
            got += tail.lines(MOST)
        text = b"".join(pieces)
        assert got == [line for line in text.split(b"\n")[:-1] if line]
        short = TailedFile(path).lines(most)
        assert all(line in text for line in short)
