import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from health import children, stuck_children
from health.children import LeakedChild
from health.stuck_children import StuckChildren
from sickbay.checks import CheckMoment, CheckResult
from sickbay.file_readings import Process
from sickbay.stuck_children import StuckChild, stuck_faults

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
MOMENT = CheckMoment(now=NOW, boot_id="boot-1", boot_seen_at=NOW)


def stuck(state: str, *, asks_driver: bool = False, waits_in: str = "", stack: str = "") -> StuckChild:
    process = Process(pid=4711, name="python3", state=state, started=1, waits_in=waits_in, stack=stack)
    return StuckChild(process=process, owner="dcgm-health", asks_driver=asks_driver)


@pytest.mark.parametrize(
    ("child", "expected"),
    [
        pytest.param(stuck("D", asks_driver=True), ["driver-hung"], id="asks nothing but the driver"),
        pytest.param(stuck("D", waits_in="nvidia_ioctl"), ["driver-hung"], id="waits in the driver"),
        pytest.param(
            stuck("D", stack="[<0>] uvm_api_register_gpu+0x1f/0x40 [nvidia_uvm]"), ["driver-hung"], id="stack"
        ),
        pytest.param(stuck("D", waits_in="nfs_wait_bit_killable"), [], id="waits for a file system"),
        pytest.param(stuck("T", asks_driver=True), [], id="is only stopped"),
        pytest.param(stuck("", asks_driver=True), [], id="is gone"),
    ],
)
def test_only_a_child_in_state_d_inside_the_driver_is_a_fault(child: StuckChild, expected: list[str]) -> None:
    """Detection 8.4 and 8.20: a process in state D inside the driver is the GPU's trouble, not the monitor's."""
    assert [fault.code for fault in stuck_faults((child,), MOMENT)] == expected


def test_several_stuck_children_are_one_fault() -> None:
    (fault,) = stuck_faults([stuck("D", asks_driver=True)] * 5, MOMENT)
    assert fault.evidence[0] == "process 4711 (python3) of check dcgm-health is in state D after a kill"


@pytest.fixture
def leaked_child(monkeypatch: pytest.MonkeyPatch) -> Iterator[LeakedChild]:
    """A real process of ours that counts as leaked a while ago."""
    process = subprocess.Popen(["sleep", "600"])
    child = LeakedChild(process=process, owner="nvml", program="sleep 600", since=time.monotonic() - 60)
    monkeypatch.setattr(children, "_leaked", [child])
    yield child
    process.kill()
    process.wait()


def test_a_real_leaked_child_is_looked_at(leaked_child: LeakedChild) -> None:
    look = stuck_children._look(leaked_child, asks_driver=True)
    # It sleeps, or has not come to that yet.
    assert (look.process.pid, look.process.name) == (leaked_child.process.pid, "sleep")
    assert look.process.state in ("S", "R")
    assert look.process.started > 0
    assert StuckChildren(["nvml"]).run(MOMENT).result is CheckResult.HEALTHY


def test_one_that_hangs_in_the_driver_is_the_check_s_fault(
    leaked_child: LeakedChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No test can have a real process in state D: here its /proc tells one."""
    texts = {"stat": f"{leaked_child.process.pid} (sleep) D 1 " + "0 " * 30, "comm": "sleep\n", "wchan": "0"}
    monkeypatch.setattr(stuck_children, "_read", lambda path: texts.get(path.name, ""))
    outcome = StuckChildren(["nvml"]).run(MOMENT)
    assert [fault.code for fault in outcome.faults] == ["driver-hung"]
    assert StuckChildren(["dcgm-health"]).run(MOMENT).faults == ()
