import os
import select
import signal
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from health import children
from health.children import MAX_OUTPUT_BYTES, leaked_children, run_child

SOON = timedelta(seconds=20)
"""A deadline that is never meant to be reached."""

AT_ONCE = timedelta(milliseconds=300)
"""A deadline that is meant to be reached."""


def python(program: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", program]


def dies(pid: int) -> bool:
    """Whether a process ends soon; a killed one takes a moment."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], SOON.total_seconds())[0])
    finally:
        os.close(descriptor)


def test_output_and_exit_code_are_kept_apart() -> None:
    result = run_child(python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"), SOON)
    assert (result.exit_code, result.stdout, result.stderr) == (3, "out\n", "err\n")
    assert result.words == "exit code 3: err"


def test_the_environment_is_added_to_our_own() -> None:
    program = "import os; print(os.environ['SICKBAY_THING'], 'PATH' in os.environ)"
    assert run_child(python(program), SOON, {"SICKBAY_THING": "here"}).stdout == "here True\n"


def test_a_program_that_is_not_there_is_told_in_words() -> None:
    result = run_child(["/nonexistent/nvidia-smi"], SOON)
    assert result.exit_code is None
    assert result.words == "cannot start /nonexistent/nvidia-smi: No such file or directory"


def test_a_child_that_hangs_is_given_up_and_its_words_so_far_are_kept() -> None:
    program = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    result = run_child(python(program), timedelta(seconds=1))
    assert (result.timed_out, result.exit_code, result.words) == (True, None, "no answer in time")
    assert dies(int(result.stdout))


def test_a_child_that_ignores_sigterm_is_killed() -> None:
    program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    assert run_child(python(program), AT_ONCE).timed_out


def test_a_child_that_stopped_itself_is_given_up() -> None:
    assert run_child(python("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"), AT_ONCE).timed_out


def test_a_child_blocked_on_a_fifo_nobody_writes_is_given_up(tmp_path: Path) -> None:
    fifo = tmp_path / "driver"
    os.mkfifo(fifo)
    assert run_child(["cat", str(fifo)], AT_ONCE).timed_out


def test_a_grandchild_that_keeps_the_pipe_does_not_hold_us_up_and_dies_too() -> None:
    program = "import os, time\npid = os.fork()\nif pid == 0:\n    time.sleep(600)\nprint(pid, flush=True)\n"
    result = run_child(python(program), SOON)
    assert result.exit_code == 0
    assert dies(int(result.stdout))


def test_a_flood_of_output_is_cut_and_does_not_block_the_child() -> None:
    result = run_child(python(f"import sys; sys.stdout.write('x' * {3 * MAX_OUTPUT_BYTES})"), SOON)
    assert result.exit_code == 0
    assert len(result.stdout) == MAX_OUTPUT_BYTES


def test_bytes_that_are_no_text_do_not_hurt() -> None:
    assert "ok" in run_child(python("import sys; sys.stdout.buffer.write(b'\\xff\\xfe ok')"), SOON).stdout


def test_a_child_that_cannot_be_reaped_is_counted_until_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in state D takes no SIGKILL; here the kill is what fails, which looks the same to the parent."""
    before = leaked_children()
    with monkeypatch.context() as patch:
        patch.setattr(children, "_REAP_SECONDS", 0.05)
        patch.setattr(os, "killpg", lambda *_: None)
        result = run_child(python("import os, time; print(os.getpid(), flush=True); time.sleep(600)"), AT_ONCE * 10)
    assert result.timed_out
    assert leaked_children() == before + 1
    os.kill(int(result.stdout), signal.SIGKILL)
    children._leaked[-1].process.wait(20)
    assert leaked_children() == before
