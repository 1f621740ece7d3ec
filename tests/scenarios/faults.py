"""The faults that stories let come to their machines."""

from simulator.host.faults import Cure, HostFault, HostTrouble
from simulator.host.gpu import GpuTrouble, RecoveryAction

_WANTS_RESET = GpuTrouble(reset_required=True, recovery_action=RecoveryAction.GPU_RESET, uncorrected_errors=2)

NEEDS_RESET = HostFault(
    name="needs a reset", gpu=0, kernel_log=("xid-95",), gpu_trouble=_WANTS_RESET, cured_by=Cure.RESET
)
RESET_DOES_NOT_HELP = NEEDS_RESET.model_copy(
    update={"name": "looks well for a moment after a reset", "cured_by": Cure.REBOOT, "relapse_after": 40.0}
)
NEEDS_REBOOT = HostFault(
    name="needs a reboot",
    gpu=0,
    kernel_log=("xid-79",),
    gpu_trouble=GpuTrouble(lost=True, recovery_action=RecoveryAction.NODE_REBOOT),
    cured_by=Cure.REBOOT,
)
NEEDS_REPLACEMENT = HostFault(
    name="needs a replacement",
    gpu=0,
    kernel_log=("xid-48", "xid-64"),
    gpu_trouble=GpuTrouble(remap_failed=True, uncorrected_errors=4),
    cured_by=Cure.REPLACE,
)
SILENT_FOR_A_WHILE = HostFault(
    name="silent for a while", host_trouble=HostTrouble(kubelet_silent=True), cured_by=Cure.ITSELF, passes_after=240
)
HANGS = HostFault(
    name="hangs",
    host_trouble=HostTrouble(kubelet_silent=True, agent_hangs=True, impaired=True),
    cured_by=Cure.REBOOT,
)
APPLICATION_TROUBLE = HostFault(
    name="a job's own fault",
    gpu=0,
    kernel_log=("xid-13", "xid-31", "xid-43", "xid-45"),
    cured_by=Cure.ITSELF,
    passes_after=1,
)
