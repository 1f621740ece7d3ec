"""Recorded outputs of our own making, in the tools' shapes, with values of our own."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from sickbay.checks import CheckOutcome, CheckResult
from sickbay.network.recorded import judge_ib_sysfs
from sickbay.recorded.model import Recorded, RecordedContext, RecordedKind
from tests.sickbay.network.moments import codes


def judge(text: str, exit_code: int | None = None) -> CheckOutcome:
    return judge_ib_sysfs(Recorded(kind=RecordedKind.IB_SYSFS, text=text, exit_code=exit_code), RecordedContext())


def ibstat(*ports: tuple[str, str, str, str], model: str = "MT4129") -> str:
    """Adapters `mlx5_0` and on, each by state, physical state, rate and link layer."""
    return "".join(
        f"CA 'mlx5_{index}'\n\tCA type: {model}\n\tNumber of ports: 1\n\tFirmware version: 28.43.1014\n\tPort 1:\n"
        f"\t\tState: {state}\n\t\tPhysical state: {physical}\n\t\tRate: {speed}\n\t\tBase lid: 7\n"
        f"\t\tLink layer: {layer}\n"
        for index, (state, physical, speed, layer) in enumerate(ports)
    )


UP = ("Active", "LinkUp", "400", "InfiniBand")


def ibstatus(*ports: tuple[str, str, str, str]) -> str:
    return "\n".join(
        f"Infiniband device 'mlx5_{index}' port 1 status:\n\tdefault gid:\t fe80::1\n\tstate:\t\t {state}\n"
        f"\tphys state:\t {physical}\n\trate:\t\t {speed}\n\tlink_layer:\t {layer}\n"
        for index, (state, physical, speed, layer) in enumerate(ports)
    )


def test_ibstat_with_all_ports_up_is_well_also_below_the_prompt_of_whoever_typed_it() -> None:
    assert judge(ibstat(UP, UP, UP)).result is CheckResult.HEALTHY
    assert judge("root@node-7:~# ibstat\n" + ibstat(UP, UP, UP)).result is CheckResult.HEALTHY


def test_ibstat_tells_each_way_of_being_down() -> None:
    text = ibstat(
        UP,
        UP,
        UP,
        ("Down", "Polling", "10", "InfiniBand"),
        ("Down", "Disabled", "10", "InfiniBand"),
        ("Initializing", "LinkUp", "400", "InfiniBand"),
    )
    assert codes(judge(text)) == {
        ("nic-port-polling", "mlx5_3"),
        ("nic-port-disabled", "mlx5_4"),
        ("nic-port-init", "mlx5_5"),
    }


def test_a_port_that_trained_to_half_the_rate_of_its_peers_is_a_fault() -> None:
    half = ("Active", "LinkUp", "200", "InfiniBand")
    assert codes(judge(ibstat(UP, half, UP))) == {("nic-rate-low", "mlx5_1")}


def test_adapters_all_slower_than_their_model_are_told_and_disturb_nobody() -> None:
    half = ("Active", "LinkUp", "200", "InfiniBand")
    faults = judge(ibstat(half, half)).faults
    assert {fault.code for fault in faults} == {"nic-rate-below-usual"}
    assert {fault.rung for fault in faults} == {"none"}


@pytest.mark.parametrize("line", ["ibwarn: [77] mad_rpc: timeout", "ibpanic: [9] main: stat failed", "Killed"])
def test_a_tool_that_stopped_with_an_error_has_not_shown_all_ports(line: str) -> None:
    outcome = judge(ibstat(UP, UP) + line + "\n")
    assert outcome.result is CheckResult.UNKNOWN
    assert line.split(":", maxsplit=1)[0] in outcome.why


def test_an_exit_code_alone_makes_a_listing_unknown_and_leaves_a_fault_a_fault() -> None:
    assert judge(ibstat(UP, UP), exit_code=255).result is CheckResult.UNKNOWN
    assert judge(ibstat(UP, UP, ("Down", "Polling", "10", "InfiniBand")), exit_code=1).result is CheckResult.FAULTS


def test_an_adapter_that_lists_fewer_ports_than_it_has_is_unknown() -> None:
    text = ibstat(UP, UP).replace("Number of ports: 1", "Number of ports: 2", 1)
    assert judge(text).result is CheckResult.UNKNOWN


def test_ibstatus_is_read_and_a_word_that_nobody_knows_is_unknown() -> None:
    up = ("4: ACTIVE", "5: LinkUp", "200 Gb/sec (4X HDR)", "InfiniBand")
    assert judge(ibstatus(up, up)).result is CheckResult.HEALTHY
    assert judge(ibstatus(up, ("9: DREAMING", *up[1:]))).result is CheckResult.UNKNOWN
    assert codes(judge(ibstatus(up, ("2: INIT", *up[1:])))) == {("nic-port-init", "mlx5_1")}


def test_rdma_link_is_read_with_and_without_interfaces() -> None:
    link = "link mlx5_{}/1 state ACTIVE physical_state LINK_UP"
    up = f"{link.format(0)}\n{link.format(1)} netdev ib1"
    assert judge(up).result is CheckResult.HEALTHY
    down = f"{up}\nlink mlx5_2/1 state DOWN physical_state POLLING netdev ib2"
    assert codes(judge(down)) == {("nic-port-polling", "mlx5_2")}
    management = f"{up}\nlink mlx5_2/1 state DOWN physical_state DISABLED netdev eth0"
    assert judge(management).result is CheckResult.HEALTHY


def dump(**changes: str) -> dict[str, str]:
    start = "/sys/class/infiniband/mlx5_{}/ports/1/{}"
    well = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "200 Gb/sec (4X HDR)", "link_layer": "InfiniBand"}
    told = {start.format(index, name): text for index in range(3) for name, text in well.items()}
    return told | {start.format(2, name): text for name, text in changes.items()}


def test_sysfs_is_read_as_lines_and_as_json() -> None:
    for told, expected in ((dump(), set()), (dump(state="2: INIT"), {("nic-port-init", "mlx5_2")})):
        lines = "\n".join(f"{path}: {text}" for path, text in told.items())
        assert codes(judge(lines)) == expected
        assert codes(judge(json.dumps({path: f"{text}\n" for path, text in told.items()}))) == expected


def test_sysfs_is_read_below_pci_addresses_and_under_heads_of_files() -> None:
    told = {path.replace("/sys/class", "/sys/bus/pci/devices/0000:1b:00.0"): text for path, text in dump().items()}
    told |= {path: "2: INIT" for path in told if path.endswith("mlx5_1/ports/1/state")}
    for line in ("{}: {}", "{}:{}", "==> {} <==\n{}\n"):
        text = "\n".join(line.format(*entry) for entry in told.items())
        assert codes(judge(text)) == {("nic-port-init", "mlx5_1")}


def test_a_file_that_cannot_be_shown_is_unknown() -> None:
    text = "\n".join(f"{path}: {text}" for path, text in dump().items())
    assert judge(f"{text}\ncat: /sys/class/infiniband/mlx5_3: Input/output error").result is CheckResult.UNKNOWN


def test_totals_of_counters_are_no_fault() -> None:
    counters = {"/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error": "18446744073709551615"}
    assert judge(json.dumps(dump() | counters)).result is CheckResult.HEALTHY


def test_a_json_dump_that_was_cut_is_unknown() -> None:
    assert judge(json.dumps(dump())[:-40]).result is CheckResult.UNKNOWN


def test_fi_info_counts_devices_and_tells_failures_apart() -> None:
    block = "provider: efa\n    fabric: efa-direct\n    domain: efa_{}-rdm\n    version: 200.0\n"
    outcome = judge(block.format(0) + block.format(1))
    assert (outcome.result, outcome.why) == (CheckResult.HEALTHY, "2 EFA devices: efa_0, efa_1")
    assert judge("fi_getinfo: -61 (No data available)").result is CheckResult.NOT_APPLICABLE
    assert judge("fi_getinfo: -12").result is CheckResult.UNKNOWN
    assert judge(block.format(0) + "provider: efa\n    fab").result is CheckResult.UNKNOWN


def test_ethtool_s_totals_prove_nothing_and_a_foreign_line_is_unknown() -> None:
    text = "NIC statistics:\n     tx_timeout: 3\n     bw_in_allowance_exceeded: 99\n"
    assert judge(text).result is CheckResult.HEALTHY
    assert judge(text + "Cannot get stats: No such device\n").result is CheckResult.UNKNOWN
    assert judge("NIC statistics:\n").result is CheckResult.UNKNOWN


def link_log(name: str, *events: tuple[str, str]) -> str:
    return "\n".join(f"Mar  3 {at} gpu-9 systemd-networkd[812]: {name}: {what}" for at, what in events)


def test_a_link_that_lost_its_carrier_often_flaps_though_it_is_up_again() -> None:
    times = [f"0{hour}:00:00" for hour in range(5)]
    events = [(at, what) for at in times for what in ("Lost carrier", "Gained carrier")]
    assert codes(judge(link_log("ib3", *events))) == {("nic-flapping", "ib3")}
    assert judge(link_log("ib3", *events[:8])).result is CheckResult.HEALTHY


def test_a_link_that_stayed_down_is_told_and_interfaces_of_containers_are_not() -> None:
    assert codes(judge(link_log("ib3", ("01:00:00", "Lost carrier")))) == {("nic-link-down", "ib3")}
    many = [(f"01:00:{second:02d}", "Lost carrier") for second in range(30)]
    assert judge(link_log("veth1a2b", *many)).result is CheckResult.UNKNOWN


def test_one_loss_told_by_the_kernel_and_a_daemon_counts_once() -> None:
    lines = []
    for second in range(4):
        lines.append(link_log("ib3", (f"01:00:{second:02d}", "Lost carrier")))
        lines.append(f"Mar  3 01:00:{second:02d} gpu-9 kernel: mlx5_core 0000:5e:00.0 ib3: Link down")
    lines.append(link_log("ib3", ("01:01:00", "Gained carrier")))
    assert judge("\n".join(lines)).result is CheckResult.HEALTHY


@given(some.text(max_size=400))
def test_any_text_is_answered_and_none_of_no_tool_is_well(text: str) -> None:
    assert judge(text).result in (CheckResult.UNKNOWN, CheckResult.FAULTS)


LISTINGS = (
    ibstat(UP, UP, ("Down", "Polling", "10", "InfiniBand")),
    ibstatus(*[("4: ACTIVE", "3: Disabled", "200 Gb/sec (4X HDR)", "InfiniBand")] * 2),
    json.dumps(dump(state="1: DOWN", phys_state="3: Disabled")),
)


@given(some.sampled_from(LISTINGS), some.data())
def test_a_cut_listing_is_answered_and_what_was_cut_amid_a_port_is_never_well(text: str, data: some.DataObject) -> None:
    cut = data.draw(some.integers(min_value=0, max_value=len(text)))
    outcome = judge(text[:cut])
    first_fault = min(place for word in ("Polling", "Disabled") if (place := text.find(word)) >= 0)
    if cut > first_fault + len("Disabled"):
        assert outcome.result in (CheckResult.FAULTS, CheckResult.UNKNOWN)
