"""The beginning of a boot that the kernel's ring lost, from a journal that a real child prints, or does not."""

import sys
from pathlib import Path

import pytest

from health import boot_journal
from health.boot_journal import earlier_lines

LINES = """\
[    1.250000] kernel: Linux version 6.8
[   12.000001] kernel: NVRM: Xid (PCI:0000:53:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
               a second line of a message, which has no stamp
[   40.000000] kernel: NVRM: what the ring still has
[   41.000000] systemd[1]: what is not the kernel's
"""


def journal(folder: Path, body: str) -> list[str]:
    """A command that prints like journalctl."""
    program = folder / "journal.py"
    program.write_text(body)
    return [sys.executable, str(program)]


def test_the_kernel_s_messages_before_the_ring_s_first_are_read(tmp_path: Path) -> None:
    lines = earlier_lines(journal(tmp_path, f"print({LINES!r})"), until=40.0)
    assert lines is not None
    assert [line[:15] for line in lines] == ["[    1.250000] ", "[   12.000001] "]
    assert "fallen off the bus" in lines[1]


@pytest.mark.parametrize("body", ["raise SystemExit(1)", "print('-- No entries --')", ""])
def test_a_journal_that_gives_nothing_is_none(tmp_path: Path, body: str) -> None:
    assert earlier_lines(journal(tmp_path, body), until=40.0) is None


def test_without_a_journal_nothing_is_run() -> None:
    assert earlier_lines([], until=40.0) is None
    assert earlier_lines(["/nonexistent/journalctl"], until=40.0) is None


def test_a_journal_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot_journal, "DEADLINE", boot_journal.DEADLINE / 100)
    assert earlier_lines(journal(tmp_path, "import time; time.sleep(60)"), until=40.0) is None
