"""A machine's files follow its faults, boot by boot."""

from pathlib import Path

from simulator.host.faults import Cure, HostFault, HostTrouble
from tests.simulator.hosts import lost, running_host
from tests.simulator.waiting import until


async def test_a_machine_shows_its_faults_in_its_files_and_takes_them_back(tmp_path: Path) -> None:
    async with running_host(tmp_path, instance_type="p4d.24xlarge") as machine:
        root = machine.folder / "run/host"
        state = root / "sys/class/infiniband/efa_1/ports/1/state"
        assert state.read_text() == "4: ACTIVE\n"
        machine.inject(
            HostFault(host_trouble=HostTrouble(efa_down=(1,), fabric_manager_dead=True), cured_by=Cure.REBOOT)
        )
        assert state.read_text() == "1: DOWN\n"
        assert not (root / "proc/1500").exists()
        await machine.reboot()
        await until(lambda: machine.boots == 2 and state.read_text() == "4: ACTIVE\n")
        assert (root / "proc/1500/stat").exists()


async def test_a_lost_gpu_leaves_the_bus_with_the_next_boot(tmp_path: Path) -> None:
    async with running_host(tmp_path, instance_type="p4d.24xlarge") as machine:
        function = machine.folder / f"run/host/sys/bus/pci/devices/{machine.driver.gpus[5].pci}.0"
        machine.inject(lost(5, cured_by=Cure.REPLACE))
        assert function.exists()
        await machine.reboot()
        await until(lambda: machine.boots == 2 and not function.exists())
