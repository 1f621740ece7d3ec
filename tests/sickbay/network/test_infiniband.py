import pytest

from sickbay.checks import CheckOutcome, CheckResult, HostFacts
from sickbay.faults import Rung
from sickbay.network.fabric import FabricExpectation
from sickbay.network.infiniband import judge_infiniband
from sickbay.network.limits import INFINIBAND_LIMITS
from tests.sickbay.network.moments import Adapters, codes, moment, port

NAMES = tuple(f"mlx5_{index}" for index in range(4))
HDR = "200 Gb/sec (4X HDR)"
HOST = HostFacts(pci_infiniband=("0000:10:00",), pci_known=True)
DOWN = port("1: DOWN", "2: Polling", "10 Gb/sec (4X SDR)", "InfiniBand")
UP = port("4: ACTIVE", "5: LinkUp", HDR, "InfiniBand")


@pytest.fixture
def adapters() -> Adapters:
    return Adapters("15b3", NAMES, layer="InfiniBand", speed=HDR)


def judge(
    adapters: Adapters, minutes: float = 60, memory: str = "", expected: FabricExpectation | None = None
) -> CheckOutcome:
    look = moment(minutes, memory=memory, host=HOST)
    return judge_infiniband(adapters.read(), look, INFINIBAND_LIMITS, expected or FabricExpectation(), 600)


def test_ports_that_are_up_at_the_rate_of_their_peers_are_well(adapters: Adapters) -> None:
    assert judge(adapters).result is CheckResult.HEALTHY


@pytest.mark.parametrize(
    ("state", "physical", "code"),
    [
        ("1: DOWN", "2: Polling", "nic-port-polling"),
        ("1: DOWN", "3: Disabled", "nic-port-disabled"),
        ("2: INIT", "5: LinkUp", "nic-port-init"),
        ("1: DOWN", "6: LinkErrorRecovery", "nic-port-down"),
    ],
)
def test_each_way_of_being_down_has_its_own_word(adapters: Adapters, state: str, physical: str, code: str) -> None:
    adapters.port["mlx5_2"] = port(state, physical, HDR, "InfiniBand")
    assert codes(judge(adapters)) == {(code, "mlx5_2")}


def test_a_port_slower_than_most_of_its_peers_is_a_fault(adapters: Adapters) -> None:
    adapters.port["mlx5_1"]["rate"] = "100 Gb/sec (2X HDR)"
    assert codes(judge(adapters)) == {("nic-rate-low", "mlx5_1")}


def test_the_fleet_s_own_rate_and_number_of_ports_outrank_the_peers(adapters: Adapters) -> None:
    expected = FabricExpectation(ports=5, rate=400)
    slow = {("nic-rate-low", name) for name in NAMES}
    assert codes(judge(adapters, expected=expected)) == slow | {("nic-missing", "unknown")}


def test_excused_and_virtual_and_ethernet_ports_are_no_part_of_the_fabric(adapters: Adapters) -> None:
    adapters.port["mlx5_3"] = DOWN
    assert judge(adapters, expected=FabricExpectation(excused=frozenset({"mlx5_3"}))).result is CheckResult.HEALTHY
    adapters.port["mlx5_3"] = DOWN | {"link_layer": "Ethernet"}
    assert judge(adapters).result is CheckResult.HEALTHY


def test_links_may_train_after_a_boot_but_not_for_ever(adapters: Adapters) -> None:
    adapters.port["mlx5_3"] = DOWN
    assert judge(adapters, minutes=2).result is CheckResult.STARTING
    assert judge(adapters, minutes=11).result is CheckResult.FAULTS


def test_a_link_that_was_up_and_goes_down_soon_after_the_boot_is_a_fault_at_once(adapters: Adapters) -> None:
    memory = judge(adapters, minutes=1).memory
    adapters.port["mlx5_3"] = DOWN
    assert codes(judge(adapters, 2, memory)) == {("nic-port-polling", "mlx5_3")}


def test_a_drop_is_four_minutes_down_without_a_count_and_is_told_for_ten_more(adapters: Adapters) -> None:
    adapters.counters = {f"{name}/ports/1/counters/link_downed": "3" for name in NAMES}
    adapters.port["mlx5_0"] = DOWN
    outcome = judge(adapters, 60)
    assert ("nic-port-dropped", "mlx5_0") not in codes(outcome)
    outcome = judge(adapters, 64, outcome.memory)
    assert ("nic-port-dropped", "mlx5_0") in codes(outcome)
    adapters.port["mlx5_0"] = UP
    outcome = judge(adapters, 65, outcome.memory)
    assert codes(outcome) == {("nic-port-dropped", "mlx5_0")}
    assert judge(adapters, 75, outcome.memory).result is CheckResult.HEALTHY


def test_three_returns_within_twelve_hours_are_a_flap(adapters: Adapters) -> None:
    memory, outcome = "", judge(adapters)
    for minute in range(60, 66):
        adapters.port["mlx5_0"] = DOWN if minute % 2 == 0 else UP
        outcome = judge(adapters, minute, memory)
        memory = outcome.memory
    assert codes(outcome) == {("nic-flapping", "mlx5_0")}
    assert judge(adapters, 65 + 12 * 60, memory).result is CheckResult.HEALTHY


def test_an_adapter_that_was_up_and_is_gone_is_missed(adapters: Adapters) -> None:
    memory = judge(adapters).memory
    adapters.names.remove("mlx5_3")
    second = judge(adapters, 61, memory)
    assert (second.result, "a second look" in second.why) == (CheckResult.UNKNOWN, True)
    assert codes(judge(adapters, 62, second.memory)) == {("nic-missing", "mlx5_3")}


def test_an_adapter_that_a_pod_has_for_itself_is_not_missed(adapters: Adapters) -> None:
    adapters.shared = False
    expected = FabricExpectation(ports=4)
    memory = judge(adapters, expected=expected).memory
    for minutes in (61, 62, 63):
        adapters.names.pop()
        outcome = judge(adapters, minutes, memory, expected)
        assert (outcome.result, outcome.faults) == (CheckResult.HEALTHY, ())
        memory = outcome.memory
    fewer = Adapters("15b3", NAMES[:3], layer="InfiniBand", speed=HDR)
    fewer.shared = False
    assert (judge(fewer, expected=expected).result, judge(fewer).result) == (CheckResult.UNKNOWN, CheckResult.HEALTHY)


def test_too_few_ports_are_missed_at_the_second_look(adapters: Adapters) -> None:
    expected = FabricExpectation(ports=4)
    memory = judge(adapters, expected=expected).memory
    adapters.names[3:] = []
    second = judge(adapters, 61, memory, expected)
    assert (second.result, second.faults) == (CheckResult.UNKNOWN, ())
    third = judge(adapters, 62, second.memory, expected)
    assert ("nic-missing", "unknown") in codes(third)


def test_ports_that_were_never_up_are_not_missing_and_ask_for_no_reboot() -> None:
    rails = Adapters("15b3", tuple(f"mlx5_{index}" for index in range(8)), layer="Ethernet", speed="400 Gb/sec")
    for index in range(5):
        rails.port[f"mlx5_{index}"] = DOWN | {"link_layer": "Ethernet"}
    (fault,) = judge(rails, expected=FabricExpectation(ports=8)).faults
    assert (fault.code, fault.rung) == ("nic-port-down", Rung.BLOCK_NEW_WORK)
    assert "mlx5_4/1" in fault.evidence[0]


def test_a_driver_that_was_unloaded_has_lost_no_adapter(adapters: Adapters) -> None:
    memory = judge(adapters).memory
    adapters.names.clear()
    second = judge(adapters, 61, memory)
    assert second.result is CheckResult.UNKNOWN
    assert codes(judge(adapters, 62, second.memory)) == {("driver-module-missing", "mlx5_ib")}


def test_an_adapter_with_a_new_name_is_not_missed(adapters: Adapters) -> None:
    memory = judge(adapters).memory
    adapters.names[3] = "ibp3"
    adapters.port["ibp3"] = UP
    assert judge(adapters, 61, memory).result is CheckResult.HEALTHY


def test_ports_whose_files_were_not_read_are_unknown_and_not_missing(adapters: Adapters) -> None:
    memory = judge(adapters).memory
    adapters.port["mlx5_3"] = {}
    outcome = judge(adapters, 61, memory)
    assert outcome.result is CheckResult.UNKNOWN
    assert "mlx5_3" in outcome.why


def test_adapters_without_a_device_of_the_driver_are_the_driver_s_trouble(adapters: Adapters) -> None:
    adapters.names.clear()
    assert codes(judge(adapters)) == {("driver-module-missing", "mlx5_ib")}


def test_a_roce_fabric_is_the_model_that_most_ports_have(adapters: Adapters) -> None:
    many = Adapters("15b3", tuple(f"mlx5_{index}" for index in range(8)), layer="Ethernet", speed="400 Gb/sec (4X NDR)")
    models = {f"mlx5_{index}/device/device": "0x1021" if index < 6 else "0x101d" for index in range(8)}
    many.counters = models
    many.port["mlx5_7"] = DOWN | {"link_layer": "Ethernet"}
    assert judge(many).result is CheckResult.HEALTHY
    many.port["mlx5_5"] = DOWN | {"link_layer": "Ethernet"}
    assert codes(judge(many)) == {("nic-port-polling", "mlx5_5")}


def test_a_server_s_spare_ethernet_port_is_no_fault() -> None:
    pair = Adapters("15b3", NAMES[:2], layer="Ethernet", speed="25 Gb/sec (1X EDR)")
    pair.port["mlx5_1"] = DOWN | {"link_layer": "Ethernet"}
    first = judge(pair)
    assert first.result is CheckResult.HEALTHY
    pair.port["mlx5_0"] = DOWN | {"link_layer": "Ethernet"}
    assert codes(judge(pair, 61, first.memory)) == {("nic-port-polling", "mlx5_0")}


def test_memory_that_cannot_be_read_is_a_new_baseline(adapters: Adapters) -> None:
    assert judge(adapters, memory="{cut").result is CheckResult.HEALTHY
