import pytest

from sickbay.checks import CheckOutcome, CheckResult, HostFacts
from sickbay.file_readings import FileReadings
from sickbay.network.efa import efa_devices, judge_efa
from sickbay.network.limits import EFA_LIMITS
from tests.sickbay.network.moments import Adapters, codes, moment, port

NAMES = ("efa_0", "efa_1", "efa_2", "efa_3")
P5 = HostFacts(instance_type="p5.48xlarge", pci_known=True)


@pytest.fixture
def adapters() -> Adapters:
    return Adapters("1d0f", NAMES, layer="Unspecified", speed="100 Gb/sec (4X EDR)")


def judge(readings: FileReadings, minutes: float = 60, memory: str = "", host: HostFacts = P5) -> CheckOutcome:
    return judge_efa(readings, moment(minutes, memory=memory, host=host), EFA_LIMITS, frozenset(), 600)


def test_fewer_devices_than_the_instance_type_can_have_are_told_and_no_fault(adapters: Adapters) -> None:
    outcome = judge(adapters.read())
    assert outcome.result is CheckResult.HEALTHY
    assert "p5.48xlarge can have 32" in outcome.why


def test_the_inventory_has_the_devices_of_the_driver_and_none_of_another_vendor(adapters: Adapters) -> None:
    assert efa_devices(adapters.read()) == NAMES
    adapters.vendor = "15b3"
    assert efa_devices(adapters.read()) == ()
    assert efa_devices(FileReadings(silent="no answer in time")) is None


def test_a_function_without_a_device_is_named_by_its_address(adapters: Adapters) -> None:
    adapters.names.remove("efa_2")
    assert codes(judge(adapters.read())) == {("efa-not-started", "0000:12:00")}


def test_a_driver_that_is_loaded_anew_is_no_fault_until_a_second_look(adapters: Adapters) -> None:
    memory = judge(adapters.read()).memory
    adapters.names.remove("efa_2")
    second = judge(adapters.read(), 61, memory)
    assert second.result is CheckResult.UNKNOWN
    assert codes(judge(adapters.read(), 62, second.memory)) == {("efa-not-started", "0000:12:00")}
    adapters.names.append("efa_2")
    assert judge(adapters.read(), 62, second.memory).result is CheckResult.HEALTHY


def test_a_device_that_a_pod_has_for_itself_is_no_fault(adapters: Adapters) -> None:
    adapters.shared = False
    memory = judge(adapters.read()).memory
    adapters.names.pop()
    second = judge(adapters.read(), 61, memory)
    assert judge(adapters.read(), 62, second.memory).result is CheckResult.HEALTHY


def test_devices_may_come_late_after_a_boot(adapters: Adapters) -> None:
    adapters.names.remove("efa_2")
    assert judge(adapters.read(), minutes=1).result is CheckResult.STARTING


def test_a_missing_module_is_the_driver_s_trouble_and_not_the_devices(adapters: Adapters) -> None:
    adapters.names.clear()
    adapters.modules = ()
    assert codes(judge(adapters.read())) == {("driver-module-missing", "efa")}


def test_a_device_that_leaves_the_bus_is_missed_for_the_whole_boot(adapters: Adapters) -> None:
    memory = judge(adapters.read()).memory
    adapters.names.remove("efa_3")
    adapters.on_bus.remove("efa_3")
    second = judge(adapters.read(), 61, memory)
    assert codes(second) == {("efa-missing", "unknown")}
    assert codes(judge(adapters.read(), 62, second.memory)) == {("efa-missing", "unknown")}


def test_a_port_that_is_down_is_a_fault_of_its_device(adapters: Adapters) -> None:
    adapters.port["efa_1"] = port("1: DOWN", "3: Disabled", "100 Gb/sec (4X EDR)", "Unspecified")
    assert codes(judge(adapters.read())) == {("nic-port-down", "efa_1")}


def test_a_port_whose_state_cannot_be_read_is_unknown(adapters: Adapters) -> None:
    del adapters.port["efa_1"]["state"]
    outcome = judge(adapters.read())
    assert outcome.result is CheckResult.UNKNOWN
    assert "efa_1" in outcome.why


def test_counters_count_by_their_growth_and_absent_ones_not_at_all(adapters: Adapters) -> None:
    path = "efa_0/hw_counters/no_completion_cmds"
    adapters.counters = {path: "7", "efa_1/ports/1/hw_counters/rx_drops": "N/A"}
    first = judge(adapters.read())
    assert first.result is CheckResult.HEALTHY
    adapters.counters[path] = "8"
    assert codes(judge(adapters.read(), 61, first.memory)) == {("nic-errors-hard", "efa_0")}
    adapters.counters[path] = "0"
    assert judge(adapters.read(), 61, first.memory).result is CheckResult.HEALTHY


def test_uverbs_that_were_not_read_accuse_nobody(adapters: Adapters) -> None:
    whole = adapters.read()
    texts = {path: text for path, text in whole.texts.items() if "uverbs1" not in path}
    assert judge(whole.model_copy(update={"texts": texts})).result is CheckResult.HEALTHY
    names = dict(whole.names) | {"/sys/class/infiniband_verbs": ("uverbs0", "uverbs2", "uverbs3")}
    closed = judge(whole.model_copy(update={"texts": texts, "names": names}))
    assert codes(closed) == {("efa-not-started", "efa_1")}


def test_an_unreadable_bus_is_unknown(adapters: Adapters) -> None:
    whole = adapters.read()
    texts = {path: text for path, text in whole.texts.items() if "uevent" not in path}
    assert judge(whole.model_copy(update={"texts": texts})).result is CheckResult.UNKNOWN
    assert judge(FileReadings(silent="no answer in time")).result is CheckResult.UNKNOWN
