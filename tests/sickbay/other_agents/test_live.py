from datetime import UTC, datetime, timedelta

from sickbay.kube_objects import Condition, Node
from sickbay.other_agents.judgement import excuses
from sickbay.other_agents.live import reported_faults

BOOT = datetime(2026, 5, 1, 8, 0, tzinfo=UTC)


def said(kind: str, status: str, *, changed: timedelta, beat: timedelta | None = None) -> Condition:
    heard = changed if beat is None else beat
    return Condition(
        type=kind,
        status=status,
        last_transition_time=BOOT + changed,
        last_heartbeat_time=BOOT + heard,
        reason="SomethingNew",
    )


def node(*conditions: Condition) -> Node:
    status = {"nodeInfo": {"bootID": "boot-2"}, "conditions": [each.model_dump(by_alias=True) for each in conditions]}
    return Node.model_validate({"metadata": {"name": "node-a", "uid": "u-1"}, "status": status})


def codes(told: Node, boot_seen_at: datetime | None = BOOT, ignored: str = "") -> list[str]:
    return [fault.code for fault in reported_faults(told, boot_seen_at, excuses(ignored))]


HOUR = timedelta(hours=1)


def test_a_bad_word_of_this_boot_is_a_fault() -> None:
    assert codes(node(said("AcceleratedHardwareReady", "False", changed=HOUR))) == ["reported-gpu"]


def test_a_word_last_said_before_this_boot_is_old_news() -> None:
    """Detection 7: a condition outlives a reboot until its agent is up again."""
    assert codes(node(said("KernelDeadlock", "True", changed=-HOUR))) == []


def test_a_word_that_is_repeated_in_this_boot_counts_however_old_its_change_is() -> None:
    assert codes(node(said("KernelDeadlock", "True", changed=-HOUR, beat=HOUR))) == ["reported-host"]


def test_an_agent_that_started_just_before_ours_has_spoken_in_this_boot() -> None:
    assert codes(node(said("KernelDeadlock", "True", changed=-timedelta(minutes=1)))) == ["reported-host"]


def test_without_our_agents_word_on_the_boot_every_word_counts() -> None:
    assert codes(node(said("KernelDeadlock", "True", changed=-HOUR)), boot_seen_at=None) == ["reported-host"]


def test_an_old_heartbeat_of_a_good_word_is_no_fault() -> None:
    assert codes(node(said("StorageReady", "True", changed=HOUR))) == []


def test_two_words_on_one_part_are_one_fault_with_both_as_evidence() -> None:
    told = node(said("GpuMemWatch", "True", changed=HOUR), said("GpuPcieWatch", "True", changed=HOUR))
    (fault,) = reported_faults(told, BOOT)
    assert (fault.code, fault.boot_id, len(fault.evidence)) == ("reported-gpu", "boot-2", 2)


def test_pressures_and_our_own_conditions_are_not_other_detectors() -> None:
    told = node(said("MemoryPressure", "True", changed=HOUR), said("SickbayGpuHealthy", "False", changed=HOUR))
    assert codes(told) == []


def test_an_excused_type_is_left_out() -> None:
    told = node(said("NetworkingReady", "False", changed=HOUR), said("StorageReady", "False", changed=HOUR))
    assert codes(told, ignored="NetworkingReady") == ["reported-storage"]
