"""Every kind of recorded output: who judges it, and what people should know of that.

Read by `sickbay check --from` and `--explain`. A new kind is a reader in the package of its layer, a word in
`RecordedKind` and one row here.
"""

from collections.abc import Mapping
from typing import Final

from sickbay.checks import CheckLayer
from sickbay.dcgm.recorded import judge_diag, judge_exporter, judge_health
from sickbay.fabric_manager.recorded import judge_fabric_manager
from sickbay.faults import ComponentKind
from sickbay.model import Frozen
from sickbay.network.recorded import judge_ib_sysfs
from sickbay.nvidia_smi.recorded import judge_nvidia_smi
from sickbay.other_agents.recorded import judge_node_conditions
from sickbay.recorded.model import Reader, RecordedKind

_GPU, _NVLINK, _NVSWITCH, _NIC = ComponentKind.GPU, ComponentKind.NVLINK, ComponentKind.NVSWITCH, ComponentKind.NIC


class KindAbout(Frozen):
    """One kind of recorded output."""

    kind: RecordedKind
    layer: CheckLayer
    judge: Reader
    judges: tuple[ComponentKind, ...]
    looks_at: str
    """Which commands print it, and what counts in it."""
    source: str
    """Who says that this means trouble: documents, issues."""
    thresholds: tuple[str, ...] = ()
    """Each limit with its unit."""


_ROWS: Final = (
    KindAbout(
        kind=RecordedKind.DCGMI_DIAG,
        layer=CheckLayer.DCGM,
        judge=judge_diag,
        judges=(_GPU, _NVLINK, ComponentKind.DRIVER, ComponentKind.MONITOR),
        looks_at="`dcgmi diag -r N`, with -j or as a table, of DCGM 2 to 4; body and exit code must agree",
        source="DCGM's sources and their table of errors; NVIDIA/DCGM issues 158 and 284",
    ),
    KindAbout(
        kind=RecordedKind.DCGMI_HEALTH,
        layer=CheckLayer.DCGM,
        judge=judge_health,
        judges=(_GPU, _NVLINK, _NVSWITCH, ComponentKind.MONITOR),
        looks_at="`dcgmi health -c`, with -j or as a table, and `dcgmi nvlink -e` or `-s`",
        source="DCGM's sources; NVSentinel issue 1357",
    ),
    KindAbout(
        kind=RecordedKind.EXPORTER,
        layer=CheckLayer.DCGM,
        judge=judge_exporter,
        judges=(_GPU, _NVLINK, ComponentKind.MONITOR),
        looks_at="a page of dcgm-exporter's metrics, in which the last Xid is a memory and blanks are no numbers",
        source="dcgm-exporter issues 95 and 190; NVSentinel pull request 1574",
    ),
    KindAbout(
        kind=RecordedKind.NVIDIA_SMI,
        layer=CheckLayer.NVML,
        judge=judge_nvidia_smi,
        judges=(_GPU, _NVLINK, ComponentKind.DRIVER, ComponentKind.HOST),
        looks_at="`nvidia-smi`, with -q, -q -x, --query-gpu as csv, -L, nvlink -s or -e, topo -m, and its error lines",
        source="NVIDIA's documents on GPU memory errors and recovery actions; NVML's return codes",
        thresholds=(
            "uncorrected memory errors since the driver was loaded: none",
            "rows remapped for uncorrected errors: fewer than 512, none pending, none failed",
            "retired pages of both kinds together, before Ampere: fewer than 63, none pending",
            "clocks held down by hardware, heat or the power brake: not at the moment of the recording",
            "NVLinks of a product that always has them: none inactive, no errors counted",
        ),
    ),
    KindAbout(
        kind=RecordedKind.IB_SYSFS,
        layer=CheckLayer.NETWORK,
        judge=judge_ib_sysfs,
        judges=(_NIC,),
        looks_at="a listing of /sys/class/infiniband, ibstat, ibstatus, rdma link, fi_info, ethtool or ip link",
        source="gpud's and gcm's rules for InfiniBand; the EFA driver",
    ),
    KindAbout(
        kind=RecordedKind.FABRIC_MANAGER,
        layer=CheckLayer.HOST,
        judge=judge_fabric_manager,
        judges=(_NVSWITCH, ComponentKind.DRIVER, ComponentKind.HOST),
        looks_at="the fabric manager's log, `systemctl status` of it or of IMEX, and `nvidia-imex-ctl -N -j`",
        source="NVIDIA's guide to the fabric manager; NVSentinel issue 883",
    ),
    KindAbout(
        kind=RecordedKind.NODE_CONDITIONS,
        layer=CheckLayer.OTHER_AGENTS,
        judge=judge_node_conditions,
        judges=(_GPU, _NVLINK, _NIC, ComponentKind.DISK, ComponentKind.HOST),
        looks_at="`kubectl describe node`, or `kubectl get nodes` as yaml, JSON or columns",
        source="eks-node-monitoring-agent, node-problem-detector, NVSentinel",
        thresholds=("a condition whose heartbeat is 15 minutes older than the kubelet's proves nothing",),
    ),
)

KINDS: Final[Mapping[RecordedKind, KindAbout]] = {row.kind: row for row in _ROWS}
"""By the word of the command line."""
