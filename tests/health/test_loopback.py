"""The loopbacks with programs of our own in the place of nccl-tests' and libfabric's."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from health import loopback
from health.loopback import EfaLoopbackCheck, NcclCheck
from health.settings import NodeSettings
from sickbay.checks import ActiveDepth, CheckMoment, CheckOutcome, CheckResult, HostFacts
from simulator.host import native
from simulator.host.machine import HostMachine
from tests.sickbay.active.gpus import MOMENT
from tests.simulator.hosts import running_host

BURN_IN = MOMENT.model_copy(update={"depth": ActiveDepth.BURN_IN})

WELL_NCCL = """
echo "gpus $CUDA_VISIBLE_DEVICES, $*" >> "$0.calls"
echo "# Out of bounds values : 0 OK"
echo "# Avg bus bandwidth    : 440.1"
"""

WELL_EFA = """
echo "$*" >> "$0.calls"
test "$FI_EFA_ENABLE_SHM_TRANSFER" = 0 || exit 9
case "$*" in *127.0.0.1) echo "64      10      =10      1.2k        0.00s      3.21      19.91       0.05" ;; esac
"""


@pytest.fixture
async def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HostMachine]:
    async with running_host(tmp_path) as running:
        monkeypatch.setenv("SICKBAY_SIM_GPU_STATE", str(running.driver.state_file))
        yield running


def program(folder: Path, script: str) -> Path:
    made = folder / "program"
    made.write_text(f"#!/bin/sh\n{script}\n")
    made.chmod(0o755)
    return made


def settings(tmp_path: Path, **more: object) -> NodeSettings:
    known = {
        "node_name": "node-a",
        "nvml_library": str(native.build().nvml_library),
        "kubelet_socket": tmp_path / "no-kubelet.sock",
        "host_root": tmp_path / "root",
    }
    return NodeSettings.model_validate(known | more)


async def run_nccl(tmp_path: Path, script: str, moment: CheckMoment = BURN_IN) -> CheckOutcome:
    check = NcclCheck(settings(tmp_path, nccl_test=str(program(tmp_path, script))))
    return await asyncio.to_thread(check.run, moment)


async def test_nccl_runs_over_all_gpus_of_an_idle_node(machine: HostMachine, tmp_path: Path) -> None:
    assert (await run_nccl(tmp_path, WELL_NCCL)).result is CheckResult.HEALTHY
    uuids = ",".join(gpu.uuid for gpu in machine.driver.gpus)
    assert (tmp_path / "program.calls").read_text() == f"gpus {uuids}, -b 1G -e 1G -g 8\n"


async def test_slow_nccl_is_a_fault_by_the_products_floor(machine: HostMachine, tmp_path: Path) -> None:
    outcome = await run_nccl(tmp_path, WELL_NCCL.replace("440.1", "120"))
    assert [fault.code for fault in outcome.faults] == ["nccl-slow"]
    assert "of which 300 is the least" in outcome.faults[0].evidence[0]


async def test_nccl_that_never_ends_is_a_fault(
    machine: HostMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Detection 8.5: a fabric in which any two GPUs hang."""
    monkeypatch.setattr(loopback, "NCCL_DEADLINE", timedelta(seconds=1))
    outcome = await run_nccl(tmp_path, "trap '' TERM; while :; do sleep 1; done")
    assert [fault.code for fault in outcome.faults] == ["nccl-hangs"]


async def test_nccl_does_not_run_beside_work(machine: HostMachine, tmp_path: Path) -> None:
    machine.occupy("pod-1", 1)
    assert (await run_nccl(tmp_path, WELL_NCCL)).result is CheckResult.NOT_APPLICABLE
    assert not (tmp_path / "program.calls").exists()


def test_loopbacks_are_parts_of_a_burn_in_and_need_their_tools(tmp_path: Path) -> None:
    for check in (NcclCheck(settings(tmp_path)), EfaLoopbackCheck(settings(tmp_path))):
        assert check.run(MOMENT).why == "a part of a burn-in alone"
    absent = settings(tmp_path, nccl_test="/nonexistent/nccl", efa_test="/nonexistent/efa")
    for check in (NcclCheck(absent), EfaLoopbackCheck(absent)):
        outcome = check.run(BURN_IN)
        assert outcome.result is CheckResult.NOT_APPLICABLE
        assert outcome.why.endswith("is not installed")


def test_machines_without_the_parts_are_not_asked(tmp_path: Path) -> None:
    one_gpu = HostFacts(pci_known=True, pci_gpus=("0000:53:00",))
    assert NcclCheck(settings(tmp_path)).applies(one_gpu) == "fewer than two NVIDIA GPUs"
    assert EfaLoopbackCheck(settings(tmp_path)).applies(one_gpu) == "no EFA function on the PCI bus"
    assert EfaLoopbackCheck(settings(tmp_path)).applies(HostFacts(pci_known=True, pci_efa=("0000:00:06",))) == ""


def run_efa(tmp_path: Path, script: str, *devices: str) -> CheckOutcome:
    for device in devices:
        (tmp_path / "root/sys/class/infiniband" / device).mkdir(parents=True)
    return EfaLoopbackCheck(settings(tmp_path, efa_test=str(program(tmp_path, script)))).run(BURN_IN)


def test_each_efa_device_talks_to_itself_and_not_through_memory(tmp_path: Path) -> None:
    outcome = run_efa(tmp_path, WELL_EFA, "rdmap79s0", "rdmap96s0", "mlx5_0")
    assert (outcome.result, outcome.why) == (CheckResult.HEALTHY, "2 devices")
    calls = (tmp_path / "program.calls").read_text().splitlines()
    assert sorted(calls) == [
        "-p efa -e rdm -d rdmap79s0-rdm -B 47592",
        "-p efa -e rdm -d rdmap79s0-rdm -P 47592 127.0.0.1",
        "-p efa -e rdm -d rdmap96s0-rdm -B 47595",
        "-p efa -e rdm -d rdmap96s0-rdm -P 47595 127.0.0.1",
    ]


def test_an_efa_device_that_fails_three_times_is_at_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "EFA_PAUSE_SECONDS", 0)
    outcome = run_efa(tmp_path, "echo 'pp_comp(): -110'; exit 1", "rdmap79s0")
    assert [(fault.code, fault.component.id) for fault in outcome.faults] == [("efa-loopback-failed", "rdmap79s0")]
    assert "3 tries" in outcome.faults[0].evidence[0]


def test_an_efa_device_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "EFA_PAUSE_SECONDS", 0)
    monkeypatch.setattr(loopback, "EFA_DEADLINE", timedelta(seconds=1.5))
    outcome = run_efa(tmp_path, "trap '' TERM; while :; do sleep 1; done", "rdmap79s0")
    assert [fault.code for fault in outcome.faults] == ["efa-loopback-failed"]
    assert outcome.faults[0].evidence[0].endswith("no end")


def test_without_devices_of_the_driver_nothing_is_known(tmp_path: Path) -> None:
    assert run_efa(tmp_path, WELL_EFA, "mlx5_0").result is CheckResult.UNKNOWN
