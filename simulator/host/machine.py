"""A simulated GPU host: power, boots, faults that come and go, and the real node agent running on it.

Implements `simulator.machine.Machine` for the cloud, which turns it on and off, and for the kubelet, which reads how it
stands; the scenario's player and the control API call `inject` and its siblings. Its folder holds `run/` (the kernel
log, the boot id and the GPUs' state of this boot), `disk/` (the agent's state, which survives reboots as a host's disk
does) and `agent.log`. A reboot asks the agent to end before it is killed; a loss of power does not ask.
"""

import asyncio
import json
import shlex
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pydantic import Field

from sickbay.names import RANK_DIR
from simulator.clock import Clock
from simulator.host.agent import GRACE_SECONDS, Agent
from simulator.host.control import HostControl, ProgramEnd
from simulator.host.dcgm_exporter import DcgmExporter, dcgm_names
from simulator.host.driver import Driver
from simulator.host.faults import HostFault, OpenFault
from simulator.host.gpu import Described
from simulator.host.gpu_models import GPU_MODELS
from simulator.host.gpu_state import replace
from simulator.host.kernel_lines import Line
from simulator.host.native import NativePrograms
from simulator.host.sysfs import HostTree, Shown
from simulator.instance_types import instance_type
from simulator.machine import Power
from simulator.tasks import Background


class RepairTimes(Described):
    """How long things take on a machine, in simulated seconds; the defaults are a quick virtual machine's."""

    boot: float = Field(default=60, ge=0)
    reboot: float = Field(default=180, ge=0)
    gpu_reset: float = Field(default=20, ge=0)


@dataclass(frozen=True)
class Site:
    """What all machines of one simulation share."""

    clock: Clock
    programs: NativePrograms
    folder: Path
    """Each machine gets a folder in it, by instance id."""
    times: RepairTimes = field(default_factory=RepairTimes)
    agent: tuple[str, ...] = ()
    """Command of the node agent; none is run if it is empty."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What every agent finds in its environment, beside the names that its machine adds."""
    dcgm: int = 0
    """Which DCGM the hosts have, 3 or 4; 0 for none."""


class HostMachine:
    """One simulated host."""

    def __init__(self, instance_id: str, node_name: str, instance_type_name: str, site: Site) -> None:
        """A machine that is off. Raises ValueError for an instance type that is not simulated."""
        self.instance_id = instance_id
        self.node_name = node_name
        self.instance_type = instance_type(instance_type_name)
        self._site = site
        self.folder = site.folder / instance_id
        self._run = self.folder / "run"
        for folder in (self._run, self.folder / "disk"):
            folder.mkdir(parents=True, exist_ok=True)
        self.driver = Driver(instance_id, GPU_MODELS[instance_type_name], self.instance_type.gpus, self._run)
        self._tree = HostTree(self._run / "host", instance_type_name, self.driver.gpus, self.driver.model)
        self.agent = self._make_agent() if site.agent else None
        self.exporter: DcgmExporter | None = None
        self.boots = 0
        """How often it came up."""
        self.gpu_resets = 0
        """How many resets nvidia-smi began."""
        self._power = Power.OFF
        self._boot_id = ""
        self._agent_held = False
        self._tasks = Background()
        self._open = AsyncExitStack()

    @property
    def power(self) -> Power:
        """Whether the machine runs now."""
        return self._power

    @property
    def boot_id(self) -> str:
        """A new one each boot; empty unless it runs."""
        return self._boot_id if self._power is Power.RUNNING else ""

    @property
    def kubelet_alive(self) -> bool:
        """False while not running, and while a fault silences the kubelet."""
        silent = any(trouble.kubelet_silent for trouble in self.driver.faults.host_troubles())
        return self._power is Power.RUNNING and not silent

    @property
    def host_root(self) -> Path | None:
        """What stands for `/` to pods' processes on this machine."""
        return self.folder / "host"

    @property
    def gpu_capacity(self) -> int:
        """GPUs of a whole machine of this type."""
        return self.instance_type.gpus

    @property
    def gpu_allocatable(self) -> int:
        """What the device plugin would report now."""
        if self._power is not Power.RUNNING:
            return 0
        return sum(self.driver.trouble(gpu).schedulable for gpu in self.driver.gpus)

    @property
    def impaired(self) -> bool:
        """What EC2's instance status check says."""
        return any(trouble.impaired for trouble in self.driver.faults.host_troubles())

    def occupy(self, owner: str, gpus: int) -> tuple[int, ...]:
        """Put a pod's process on free healthy GPUs; nothing while the machine does not run, or if there are too few."""
        return self.driver.occupy(owner, gpus) if self._power is Power.RUNNING else ()

    def open_gpus(self, owner: str) -> None:
        """A pod's process opens every GPU without being given any; nothing while the machine does not run."""
        if self._power is Power.RUNNING:
            self.driver.monitors.add(owner)

    def vacate(self, owner: str) -> None:
        """The pod's processes have ended."""
        self.driver.vacate(owner)

    async def start(self) -> None:
        """Power on; returns at once."""
        if self._power is not Power.OFF:
            return
        self._power = Power.BOOTING
        control = await self._open.enter_async_context(HostControl(self.reset_gpus, self.reboot))
        self.driver.control_address = control.address
        if self._site.dcgm:
            await self._serve_dcgm()
        self._tasks.spawn(self._boot(self._site.times.boot), f"boot {self.node_name}")

    async def reboot(self) -> None:
        """Reboot; returns at once. Nothing happens unless the machine runs."""
        if self._power is not Power.RUNNING:
            return
        self._power = Power.BOOTING
        self._tasks.spawn(self._reboot(), f"reboot {self.node_name}")

    async def stop(self) -> None:
        """Power off and end every process. Should it be started again, it is on another host: its faults are gone."""
        self._power = Power.OFF
        self._boot_id = ""
        await self._tasks.close()
        if self.agent:
            await self.agent.stop()
        await self._open.aclose()
        self.driver.faults.open.clear()

    def inject(self, fault: HostFault) -> None:
        """A fault comes, at once; while the machine boots, with its boot. Raises ValueError if it is off or has no such
        GPU."""
        if self._power is Power.OFF:
            raise ValueError(f"{self.node_name} is off: nothing can happen to it")
        if fault.gpu is not None and fault.gpu >= len(self.driver.gpus):
            raise ValueError(
                f"{self.node_name} has GPUs 0 to {len(self.driver.gpus) - 1}, and none of index {fault.gpu}"
            )
        open_fault = self.driver.faults.add(fault)
        if self._power is Power.RUNNING:
            self._show(open_fault)
        if fault.passes_after is not None:
            self._later(fault.passes_after, partial(self._pass, open_fault))
        if fault.repeat_every is not None:
            self._tasks.spawn(self._repeat(open_fault, fault.repeat_every), f"repeat {fault.name}")

    def write_kernel_log(self, lines: Sequence[str]) -> None:
        """Raw kernel messages, as they stand. Raises ValueError unless the machine runs."""
        if self._power is not Power.RUNNING:
            raise ValueError(f"{self.node_name} is {self._power}: a kernel writes only while its machine runs")
        self.driver.kernel_log.write(Line(line) for line in lines)

    def hold_agent(self, held: bool) -> None:
        """Freeze the agent, or let it go on, until the next boot."""
        self._agent_held = held
        self._refresh()

    async def reset_gpus(self, uuids: Sequence[str]) -> ProgramEnd:
        """Reset GPUs for `nvidia-smi`; never returns while the driver or one of them hangs."""
        boot = self._boot_id
        if self.driver.hangs or any(self.driver.trouble(gpu).hangs for gpu in self.driver.named(uuids)):
            await asyncio.get_running_loop().create_future()
        if refused := self.driver.refuse_reset(uuids):
            return refused
        self.gpu_resets += 1
        self.driver.begin_reset(uuids)
        await self._site.clock.sleep(self._site.times.gpu_reset)
        if self.boot_id != boot:
            return ProgramEnd(255, "the machine went down during the reset\n")
        end, left = self.driver.end_reset(uuids)
        self._show_devices()
        for open_fault in left:
            self._later(open_fault.fault.relapse_after, partial(self._relapse, open_fault))
        return end

    async def _reboot(self) -> None:
        if self.agent:
            await self.agent.stop(GRACE_SECONDS)
        stuck = any(trouble.reboot_hangs for trouble in self.driver.faults.host_troubles())
        self.driver.faults.reboot()
        if not stuck:
            await self._boot(self._site.times.reboot)

    async def _boot(self, seconds: float) -> None:
        await self._site.clock.sleep(seconds)
        self._boot_id = str(uuid.uuid4())
        replace(self._run / "boot_id", f"{self._boot_id}\n")
        self.boots += 1
        self._agent_held = False
        self.driver.boot()
        self._tree.boot(self._files_shown())
        # /run does not survive a boot.
        shutil.rmtree(self.folder / "host" / "run", ignore_errors=True)
        self._power = Power.RUNNING
        if self.agent:
            self.agent.start()
        self._refresh()

    def _show(self, open_fault: OpenFault) -> None:
        self.driver.report(open_fault)
        self._refresh()

    def _refresh(self) -> None:
        self.driver.refresh()
        self._tree.show(self._files_shown())
        self._show_devices()
        if self.agent:
            frozen = any(trouble.agent_hangs for trouble in self.driver.faults.host_troubles())
            self.agent.freeze(frozen or self._agent_held)

    def _show_devices(self) -> None:
        """Tell the processes of pods how the GPUs are, which they would learn of CUDA."""
        bad = [gpu.index for gpu in self.driver.gpus if not self.driver.trouble(gpu).schedulable]
        (self.folder / "host").mkdir(exist_ok=True)
        replace(self.folder / "host" / "devices.json", json.dumps({"lost": bad}))

    def _files_shown(self) -> Shown:
        troubles = self.driver.faults.host_troubles()
        return Shown(
            gpus_absent=frozenset(gpu.index for gpu in self.driver.gpus if self.driver.trouble(gpu).absent),
            efa_absent=frozenset(index for trouble in troubles for index in trouble.efa_absent),
            efa_down=frozenset(index for trouble in troubles for index in trouble.efa_down),
            fabric_manager_dead=any(trouble.fabric_manager_dead for trouble in troubles),
        )

    def _pass(self, open_fault: OpenFault) -> None:
        if self.driver.faults.remove(open_fault) and self._power is Power.RUNNING:
            self._refresh()

    def _relapse(self, open_fault: OpenFault) -> None:
        if open_fault in self.driver.faults.open and not open_fault.shows:
            open_fault.shows = True
            self._show(open_fault)

    async def _repeat(self, open_fault: OpenFault, every: float) -> None:
        while open_fault in self.driver.faults.open:
            await self._site.clock.sleep(every)
            if open_fault in self.driver.faults.open and open_fault.shows and self._power is Power.RUNNING:
                self.driver.report(open_fault)

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        async def wait() -> None:
            await self._site.clock.sleep(seconds)
            act()

        self._tasks.spawn(wait(), f"{self.node_name} in {seconds} s")

    async def _serve_dcgm(self) -> None:
        exporter = DcgmExporter(self.driver, self.node_name, lambda: self._power is Power.RUNNING)
        self.exporter = await self._open.enter_async_context(exporter)
        if self.agent:
            self.agent.tell(dcgm_names(self._site.programs, self._site.dcgm, exporter.url))

    def _make_agent(self) -> Agent:
        programs = self._site.programs
        environment = {
            **self._site.environment,
            "SICKBAY_NODE_NAME": self.node_name,
            "SICKBAY_KMSG_PATH": str(self.driver.kernel_log.path),
            "SICKBAY_BOOT_ID_PATH": str(self._run / "boot_id"),
            "SICKBAY_HOST_ROOT": str(self._tree.root),
            "SICKBAY_WATCH_CLOCK": "false",
            "SICKBAY_NVIDIA_SMI": str(programs.nvidia_smi),
            "SICKBAY_NVML_LIBRARY": str(programs.nvml_library),
            "SICKBAY_CUDA_LIBRARY": str(programs.cuda_library),
            # No kubelet of the machine that simulates; and its own memory and time are all that a burn-in would load.
            "SICKBAY_KUBELET_SOCKET": str(self._run / "kubelet.sock"),
            "SICKBAY_ACTIVE_MEGABYTES": "4",
            "SICKBAY_BURN_IN_MEMORY": "0.0001",
            "SICKBAY_BURN_IN_MOST": "1",
            "SICKBAY_COPY_FLOOR": "0",
            "SICKBAY_REBOOT_COMMAND": shlex.quote(str(programs.reboot)),
            "SICKBAY_STATE_DIR": str(self.folder / "disk"),
            "SICKBAY_RANK_DIR": str(self.folder / "host" / RANK_DIR.lstrip("/")),
            "SICKBAY_HOST_IP": "127.0.0.1",
            "SICKBAY_EXPECTED_GPUS": str(self.instance_type.gpus),
            "SICKBAY_SIM_GPU_STATE": str(self.driver.state_file),
        }
        words = (str(programs.machine_init), *self._site.agent)
        return Agent(words, environment, self.folder / "agent.log", self._site.clock)
