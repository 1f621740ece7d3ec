"""The loopbacks of well-known tools, where they are installed: NCCL over all GPUs, and EFA devices with themselves.

Listed in `health.layers`; they run as parts of a burn-in alone, since they take minutes and the whole node. The rules
are in `sickbay.active`. A node without the tools is not judged by them.
"""

import shutil
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from health import loopback_child
from health.active import KEPT, NEVER, usage_of
from health.children import run_child
from health.files import read_files
from health.settings import NodeSettings
from sickbay.active.efa import EfaTry, judge_efa_loopback
from sickbay.active.idleness import IdleGpu
from sickbay.active.nccl import judge_nccl
from sickbay.active.speeds import peaks_of
from sickbay.catalogue import fault_of
from sickbay.checks import (
    ActiveDepth,
    CheckAbout,
    CheckCost,
    CheckLayer,
    CheckMoment,
    CheckOutcome,
    HostFacts,
    healthy,
    judged,
    not_applicable,
    unknown,
)
from sickbay.faults import Component, ComponentKind
from sickbay.file_readings import Wanted

NCCL_DEADLINE: Final = timedelta(minutes=3)
EFA_DEADLINE: Final = timedelta(seconds=180)
"""For one device (awsome-distributed-training)."""
EFA_TRIES: Final = 3
EFA_PAUSE_SECONDS: Final = 5.0
EFA_PORT: Final = 47592
"""The first port on which the two sides meet, fi_pingpong's own; each try has the next one, since an ended try may hold
its port for a while."""

_DEVICES: Final = "/sys/class/infiniband"
_ONLY_IN_BURN_IN: Final = "a part of a burn-in alone"


class NcclCheck:
    """A reduction over all GPUs of the node, by nccl-tests."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self.about = CheckAbout(
            name="nccl-loopback",
            layer=CheckLayer.ACTIVE,
            judges=(ComponentKind.GPU, ComponentKind.NVLINK, ComponentKind.NVSWITCH),
            cost=CheckCost.EXCLUSIVE,
            looks_at="all_reduce_perf of nccl-tests over all GPUs of an idle node, 1 GiB: results and bus bandwidth.",
            source="awsome-distributed-training, Azure's node health checks, gcm",
            thresholds=(
                "least bus bandwidth by the product: 150 GB/s A100, 300 H100 and later (SICKBAY_NCCL_FLOOR)",
                "the program is SICKBAY_NCCL_TEST; where it is not installed this is not judged",
            ),
            every=NEVER,
            deadline=NCCL_DEADLINE + timedelta(minutes=1),
            fresh_for=KEPT,
            passes=1,
        )

    def applies(self, host: HostFacts) -> str:
        """Empty if there may be several GPUs."""
        return "fewer than two NVIDIA GPUs" if host.pci_known and len(host.pci_gpus) < 2 else ""

    def run(self, moment: CheckMoment) -> CheckOutcome:
        """Run the test if the whole node is idle."""
        if moment.depth is not ActiveDepth.BURN_IN:
            return not_applicable(_ONLY_IN_BURN_IN)
        program = shutil.which(self._settings.nccl_test)
        if program is None:
            return not_applicable(f"{self._settings.nccl_test} is not installed")
        idle = usage_of(self._settings).look()
        if idle.unjudged:
            return unknown("; ".join(idle.unjudged))
        gpus = [gpu for gpu in idle.idle if gpu.visible == (gpu.uuid,)]
        if idle.left_out or len(gpus) < max(2, len(idle.idle)):
            return not_applicable("needs at least two GPUs, all of them idle and whole")
        return self._judge(program, gpus, moment)

    def _judge(self, program: str, gpus: Sequence[IdleGpu], moment: CheckMoment) -> CheckOutcome:
        command = [program, "-b", "1G", "-e", "1G", "-g", str(len(gpus))]
        environment = {"CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in gpus), "CUDA_CACHE_DISABLE": "1"}
        result = run_child(command, NCCL_DEADLINE, environment)
        if result.not_started:
            return unknown(result.not_started)
        peaks = peaks_of(gpus[0].product)
        floor = self._settings.nccl_floor
        if floor is None and peaks is not None:
            floor = peaks.all_reduce
        output = f"{result.stderr}\n{result.stdout}"
        finding = judge_nccl(output, timed_out=result.timed_out, exit_code=result.exit_code, floor=floor)
        if not finding.code:
            return judged((), finding.unjudged)
        component = Component(kind=ComponentKind.NVLINK, id="unknown")
        evidence = (f"{self._settings.nccl_test} over {len(gpus)} GPUs: {finding.evidence}",)
        fault = fault_of(finding.code, component, seen=moment.now, boot_id=moment.boot_id, evidence=evidence)
        return judged((fault,))


class EfaLoopbackCheck:
    """Each EFA device talking to itself, by libfabric's fi_pingpong."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self.about = CheckAbout(
            name="efa-loopback",
            layer=CheckLayer.ACTIVE,
            judges=(ComponentKind.NIC,),
            cost=CheckCost.EXCLUSIVE,
            looks_at="fi_pingpong of each EFA device with itself, through its queues and not through memory.",
            source="awsome-distributed-training",
            thresholds=(
                f"{EFA_TRIES} tries, {EFA_PAUSE_SECONDS:g} s apart",
                "the program is SICKBAY_EFA_TEST; where it is not installed this is not judged",
            ),
            every=NEVER,
            deadline=timedelta(minutes=10),
            fresh_for=KEPT,
            passes=1,
        )

    def applies(self, host: HostFacts) -> str:
        """Empty if there may be EFA devices."""
        return "no EFA function on the PCI bus" if host.pci_known and not host.pci_efa else ""

    def run(self, moment: CheckMoment) -> CheckOutcome:
        """Let each device talk to itself."""
        if moment.depth is not ActiveDepth.BURN_IN:
            return not_applicable(_ONLY_IN_BURN_IN)
        program = shutil.which(self._settings.efa_test)
        if program is None:
            return not_applicable(f"{self._settings.efa_test} is not installed")
        files = read_files(self._settings.host_root, Wanted(listings=(_DEVICES,)))
        if files.silent or _DEVICES not in files.names:
            return unknown(f"{_DEVICES} cannot be read: {files.silent or files.failed.get(_DEVICES, 'no answer')}")
        devices = [name for name in files.names[_DEVICES] if _is_efa(name)]
        if not devices:
            return unknown("the driver has made no device of the EFA functions")
        end = time.monotonic() + (self.about.deadline - EFA_DEADLINE).total_seconds()
        done: list[EfaTry] = []
        for number, device in enumerate(devices):
            if time.monotonic() > end:
                return judged(judge_efa_loopback(done, moment).faults, f"the time was over before {device}")
            done.append(_talk_to_itself(program, device, EFA_PORT + number * EFA_TRIES))
        outcome = judge_efa_loopback(done, moment)
        return outcome if outcome.why or outcome.faults else healthy(f"{len(devices)} devices")


def _is_efa(name: str) -> bool:
    """EFA devices are named after their place on the bus (`rdmap79s0`), or `efa_0` where nobody renames them."""
    return name.startswith(("rdmap", "efa"))


def _talk_to_itself(program: str, device: str, port: int) -> EfaTry:
    """The last of at most three tries."""
    command = [sys.executable, "-I", str(Path(loopback_child.__file__)), program, device]
    tried = EfaTry(device=device, tries=0, exit_code=None)
    for number in range(EFA_TRIES):
        if number:
            time.sleep(EFA_PAUSE_SECONDS)
        result = run_child([*command, str(port + number)], EFA_DEADLINE / EFA_TRIES)
        tried = EfaTry(
            device=device,
            tries=number + 1,
            exit_code=result.exit_code,
            output=f"{result.stdout}\n{result.stderr}",
            timed_out=result.timed_out,
            not_started=result.not_started,
        )
        if tried.passed:
            break
    return tried
