from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.faults import Moment
from sickbay.kernel_log import scan
from sickbay.kernel_log.lines import KERNEL, LINE_LENGTH_KEPT, read_line, seconds_between

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=77, name=train, GPU has fallen off the bus."

SHAPES: dict[str, tuple[str, Moment | None]] = {
    "bare": ("", None),
    "dmesg": ("[  219.470994] ", 219.470994),
    "dmesg with caller": ("[  219.470994][ T1234] ", 219.470994),
    "printk level": ("<4>[  219.470994] ", 219.470994),
    "dmesg -T": ("[Wed Jul 31 23:14:18 2024] ", datetime(2024, 7, 31, 23, 14, 18, tzinfo=UTC)),
    "dmesg -x": ("kern  :err   : [  219.470994] ", 219.470994),
    "dmesg -x --time-format iso": (
        "kern  :err   : 2025-01-25T10:34:54,859532+00:00 ",
        datetime(2025, 1, 25, 10, 34, 54, 859532, tzinfo=UTC),
    ),
    "dmesg --time-format iso": (
        "2025-01-25T10:34:54,859532+00:00 ",
        datetime(2025, 1, 25, 10, 34, 54, 859532, tzinfo=UTC),
    ),
    "raw kmsg": ("4,3973,219470994,-;", 219.470994),
    "journalctl -k": ("Dec 02 11:38:47 node-a kernel: ", None),
    "journalctl -o short-iso": (
        "2025-01-25T10:34:54+0100 node-a kernel: ",
        datetime(2025, 1, 25, 10, 34, 54, tzinfo=timezone(timedelta(hours=1))),
    ),
    "journalctl -o short-monotonic": ("[  219.470994] node-a kernel: ", 219.470994),
    "journalctl -o cat with tag": ("kernel: ", None),
    "syslog": ("Dec  2 11:38:47 node-a kernel: [  219.470994] ", 219.470994),
    "syslog without boot stamp": ("Dec  2 11:38:47 node-a kernel: ", None),
    "syslog of rsyslog": (
        "2025-01-25T10:34:54.859532+00:00 node-a kernel: [  219.470994] ",
        datetime(2025, 1, 25, 10, 34, 54, 859532, tzinfo=UTC),
    ),
    "syslog of RFC 5424": (
        "<4>1 2025-01-25T10:34:54.859532Z node-a kernel - - - ",
        datetime(2025, 1, 25, 10, 34, 54, 859532, tzinfo=UTC),
    ),
    "talos": (
        "10.5.0.2: kern: warning: [2025-01-25T10:34:54.859532Z]: ",
        datetime(2025, 1, 25, 10, 34, 54, 859532, UTC),
    ),
    "dmesg -T in syslog": ("[Wed Jul 31 23:14:18 2024] node-a kernel: ", datetime(2024, 7, 31, 23, 14, 18, tzinfo=UTC)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_of_a_kernel_line_gives_its_text_and_moment(shape: str) -> None:
    prefix, moment = SHAPES[shape]
    line = read_line(prefix + XID)
    assert (line.text, line.moment, line.program) == (XID, moment, KERNEL)
    assert line.raw == prefix + XID


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_gives_the_same_fault(shape: str) -> None:
    (fault,) = scan([SHAPES[shape][0] + XID])
    assert (fault.code, fault.component.id) == ("xid-79", "0000:3b:00")


@pytest.mark.parametrize(
    "text",
    [
        "nvme nvme4: I/O tag 22 timeout",
        "EDAC MC3: 1 CE memory error",
        "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal",
        "mlx5_core 0000:d2:00.0: Link down",
        "block nvme0n1: no available path - failing I/O",
        "watchdog: BUG: soft lockup",
    ],
)
@pytest.mark.parametrize("prefix", ["[Wed Jul 31 23:14:18 2024] ", "2025-01-25T10:34:54,859532+00:00 ", "[ 1.5] ", ""])
def test_the_first_words_of_a_message_are_not_taken_for_host_and_program(text: str, prefix: str) -> None:
    assert read_line(prefix + text).text == text


def test_a_program_that_quotes_the_kernel_shows_no_fault() -> None:
    assert scan([f"Dec  2 11:38:47 node-a kubelet[812]: pod said: {XID}"]) == ()


def test_a_wrapper_of_repeats_is_taken_off_and_counted() -> None:
    line = read_line(f"Dec  2 11:38:47 node-a kernel: message repeated 9 times: [ {XID}]")
    assert (line.text, line.repeats) == (XID, 9)


def test_a_newline_inside_a_raw_record_is_restored() -> None:
    assert read_line("3,1,1000000,-;one\\x0atwo").text == "one\ntwo"


def test_a_date_that_does_not_exist_is_no_moment() -> None:
    assert read_line("[Wed Feb 31 23:14:18 2024] hello").moment is None
    assert read_line("2025-13-40T10:34:54Z node-a kernel: hello").moment is None


def test_a_line_without_an_end_is_cut() -> None:
    assert len(read_line("x" * 10 * LINE_LENGTH_KEPT).raw) == LINE_LENGTH_KEPT


def test_moments_of_different_clocks_are_not_compared() -> None:
    now = datetime(2025, 1, 1, tzinfo=UTC)
    assert seconds_between(1.0, 3.5) == 2.5
    assert seconds_between(now, now + timedelta(minutes=1)) == 60
    assert seconds_between(now, 3.5) is None
    assert seconds_between(None, 3.5) is None


@given(st.text())
def test_any_line_can_be_taken_apart(raw: str) -> None:
    assert read_line(raw).text in raw.replace("\\x0a", "\n")
