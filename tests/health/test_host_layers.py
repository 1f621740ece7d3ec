"""The network and host layers whole, on the files of simulated hosts and with real children."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from health.children import ChildResult
from health.clock import read_clock
from health.files import HostFiles
from health.host import HOST_WANTED, ServicesCheck, host_checks, read_units
from health.host_facts import host_facts
from health.network import NETWORK_WANTED, network_checks
from health.settings import NodeSettings
from sickbay.checks import CheckMoment, CheckOutcome, CheckResult, HostFacts
from sickbay.instance_types import limits_of
from simulator.host.gpu import identities
from simulator.host.gpu_models import GPU_MODELS
from simulator.host.sysfs import HostTree, Shown
from simulator.instance_types import INSTANCE_TYPES

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
INSTANCE_TYPES_SIMULATED = tuple(INSTANCE_TYPES)


def tree(folder: Path, kind: str, shown: Shown = Shown()) -> HostTree:  # noqa: B008 -- it is frozen
    made = HostTree(folder / "host", kind, identities("i-1", INSTANCE_TYPES[kind].gpus), GPU_MODELS[kind])
    made.boot(shown)
    return made


def settings(host: HostTree, **more: str) -> NodeSettings:
    values = {"node_name": "n", "host_root": str(host.root), "watch_clock": "false", "service_command": "false"}
    return NodeSettings.model_validate(values | more)


def look(host: HostTree, **more: str) -> dict[str, CheckOutcome]:
    """What each check says that applies to this host."""
    chosen = settings(host, **more)
    files = HostFiles(host.root, HOST_WANTED + NETWORK_WANTED)
    facts = host_facts(chosen)
    at = CheckMoment(now=NOW, boot_id="boot-1", boot_seen_at=NOW - timedelta(hours=1), host=facts)
    checks = (*network_checks(chosen, files), *host_checks(chosen, files))
    return {check.about.name: check.run(at) for check in checks if not check.applies(facts)}


@pytest.mark.parametrize("kind", INSTANCE_TYPES_SIMULATED)
def test_a_whole_host_of_each_simulated_type_is_well(tmp_path: Path, kind: str) -> None:
    said = look(tree(tmp_path, kind))
    assert {name: outcome.result for name, outcome in said.items()} == dict.fromkeys(said, CheckResult.HEALTHY)
    limits = limits_of(kind)
    assert ("efa" in said) is bool(limits and limits.max_efa)
    assert "infiniband" not in said


def test_the_facts_of_a_host_come_from_firmware_and_bus(tmp_path: Path) -> None:
    facts = host_facts(settings(tree(tmp_path, "p5.48xlarge")))
    counts = (len(facts.pci_gpus), len(facts.pci_nvswitches), len(facts.pci_efa), len(facts.pci_infiniband))
    assert (facts.instance_type, counts, facts.pci_known) == ("p5.48xlarge", (8, 4, 32, 0), True)
    assert facts.pci_gpus[0] == "0000:53:00"


def test_nothing_is_known_of_a_host_without_files(tmp_path: Path) -> None:
    nowhere = NodeSettings.model_validate({"node_name": "n", "host_root": str(tmp_path / "nowhere")})
    assert host_facts(nowhere) == HostFacts()


def test_what_a_simulated_host_shows_is_found(tmp_path: Path) -> None:
    shown = Shown(
        gpus_absent=frozenset({2}), efa_absent=frozenset({1}), efa_down=frozenset({0}), fabric_manager_dead=True
    )
    said = look(tree(tmp_path, "p4d.24xlarge", shown))
    found = {name: {fault.code for fault in outcome.faults} for name, outcome in said.items() if outcome.faults}
    assert found == {
        "efa": {"nic-port-down"},
        "gpu-devices": {"gpu-missing"},
        "services": {"fabric-manager-down"},
    }


def test_a_fault_that_passes_is_found_no_more(tmp_path: Path) -> None:
    host = tree(tmp_path, "p4d.24xlarge", Shown(efa_absent=frozenset({1}), fabric_manager_dead=True))
    host.show(Shown())
    assert {outcome.result for outcome in look(host).values()} == {CheckResult.HEALTHY}


def test_an_operator_excuses_a_device(tmp_path: Path) -> None:
    host = tree(tmp_path, "p4d.24xlarge", Shown(efa_down=frozenset({0})))
    assert look(host)["efa"].result is CheckResult.FAULTS
    assert look(host, excused_ports="efa_0, ib3")["efa"].result is CheckResult.HEALTHY


def test_limits_that_cannot_be_read_are_refused_at_the_start() -> None:
    with pytest.raises(ValidationError, match="is no limit of a counter"):
        NodeSettings.model_validate({"node_name": "n", "nic_limits": "rx_drops>fast"})


def test_the_kernel_tells_of_its_clock() -> None:
    reading = read_clock()
    assert reading.status is not None or reading.refused


def test_systemd_s_answer_is_read_and_its_refusal_kept() -> None:
    text = "Id=nvidia-imex.service\nLoadState=loaded\nActiveState=active\nSubState=running\nResult=success\n"
    assert read_units(ChildResult(0, text, "")).units["nvidia-imex"].active == "active"
    refused = read_units(ChildResult(1, "", "Failed to connect to bus: No such file or directory"))
    assert "Failed to connect to bus" in refused.silent
    assert not refused.units


def test_a_systemctl_that_is_not_there_is_no_crash(tmp_path: Path) -> None:
    host = tree(tmp_path, "p5.48xlarge")
    check = ServicesCheck(("/nowhere/systemctl",), 600, HostFiles(host.root, HOST_WANTED))
    at = CheckMoment(now=NOW, boot_id="b", boot_seen_at=NOW - timedelta(hours=1), host=host_facts(settings(host)))
    assert check.run(at).result is CheckResult.HEALTHY
