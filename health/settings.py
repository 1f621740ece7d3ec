"""Settings of the node agent, each from an environment variable `SICKBAY_<NAME>`.

Read once by `sickbay node`; the simulator gives the same names, so that simulated nodes run the same program.
"""

from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from sickbay.names import RANK_DIR
from sickbay.network.limits import limits_from


class Listening(StrEnum):
    """When NVML's events are listened to."""

    WHEN_LOG_SILENT = "when-log-silent"
    ALWAYS = "always"
    NEVER = "never"


class NodeSettings(BaseSettings):
    """What the agent of one node must know. All durations are in seconds."""

    model_config = SettingsConfigDict(env_prefix="SICKBAY_", frozen=True, extra="ignore", env_ignore_empty=True)

    node_name: str = Field(min_length=1)
    """Name of the Node object that we run on; from the downward API (spec.nodeName)."""
    api_server: str = Field(default="", pattern=r"^(https?://[^/]+)?$")
    """Address of the API server, e.g. `https://10.0.0.1:443`; without it, the one that every pod is told."""
    expected_gpus: int | None = Field(default=None, ge=0)
    """GPUs of a healthy machine of this type; without it, as many as this boot has shown."""

    host_root: Path = Path("/")
    """Where the host's own `/` is seen; its /sys, /proc and driver files are read below it."""
    excused_ports: str = ""
    """RDMA devices (`mlx5_2`), their ports (`mlx5_2/1`) and network interfaces (`ib3`) that are no part of the compute
    fabric, with commas between."""
    infiniband_ports: int | None = Field(default=None, ge=0)
    """InfiniBand or RoCE ports of the compute fabric on every node of this fleet; without it, those that are there."""
    infiniband_rate: float | None = Field(default=None, gt=0)
    """Gb/s of each such port; without it, as many as most of its peers on the node."""
    nic_limits: str = ""
    """Limits of error counters that replace the built-in ones, e.g. `symbol_error>120/h!, rx_drops=off`; one with `!`
    blocks new work, one without is only told. `sickbay check --explain infiniband` lists the built-in ones."""
    watch_clock: bool = True
    """Whether the kernel's clock belongs to this node; a simulated node has none of its own."""
    kmsg_path: Path = Path("/dev/kmsg")
    boot_id_path: Path = Path("/proc/sys/kernel/random/boot_id")
    nvidia_smi: str = "nvidia-smi"
    """The program, by name or path."""
    nvml_library: str = ""
    """Path of libnvidia-ml.so.1, where it is not on the loader's path."""
    reboot_command: str = "systemctl reboot"
    """Words of the command that asks the host to reboot; in a container e.g. `nsenter -t 1 -m -- systemctl reboot`."""
    journal_command: str = "journalctl"
    """Words of the command that prints the host's journal, for the beginning of a boot that the kernel's ring has
    overwritten; empty to do without."""
    service_command: str = "systemctl"
    """Words of the command that stops and starts host services, as systemctl does it."""
    gpu_clients: str = "nvidia-persistenced nvidia-dcgm"
    """Host services that hold a GPU open and must stop for a reset, in the order of stopping (serially: facts on
    remediation, 4.2). Those that do not run are left alone."""
    state_dir: Path = Path("/var/lib/sickbay")
    """A folder of the host; it must survive the agent, and may survive a reboot."""
    trust_user_records: bool = False
    """Believe kernel-log records that programs wrote, not the kernel. For fault drills alone: any privileged container
    could have its node replaced with it."""

    cuda_library: str = ""
    """Path of libcuda.so.1, where it is not on the loader's path."""
    kubelet_socket: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    """Where the kubelet tells which GPUs pods have. Without this file, NVML alone tells which GPUs are idle."""
    active_seconds: float = Field(default=600, ge=0)
    """Between two short trials of idle GPUs; 0 means none but those that an incident or a person asks for."""
    active_megabytes: int = Field(default=128, ge=4, le=4096)
    """MiB of a GPU's memory that a short trial takes, and that each measured copy moves."""
    burn_in_memory: float = Field(default=0.8, gt=0, le=0.95)
    """Share of a GPU's free memory that a burn-in computes in."""
    burn_in_most: float | None = Field(default=None, gt=0)
    """Seconds that a burn-in loads the GPUs at most, whatever is asked for."""
    copy_floor: float = Field(default=0.25, ge=0, lt=1)
    """Share of a product's peak bandwidth below which a copy is too slow; 0 means that rates are not judged."""
    nccl_test: str = "all_reduce_perf"
    """The program of nccl-tests, by name or path."""
    nccl_floor: float | None = Field(default=None, ge=0)
    """GB/s of bus bandwidth that a reduction over all GPUs must reach; without it, what the product's table says."""
    efa_test: str = "fi_pingpong"
    """libfabric's program, by name or path."""

    dcgmi_command: str = "dcgmi"
    """Words of DCGM's program; in a container without it e.g. `nsenter -t 1 -m -- dcgmi`. Where there is none, DCGM is
    not asked."""
    dcgm_seconds: float = Field(default=50, gt=0)
    """For an answer of DCGM on its health watches; under load it was seen to need 45 (NVSentinel#1748)."""
    dcgm_quick_level: int = Field(default=1, ge=1, le=4)
    """Level of DCGM's diagnostic when active checks are asked for; 1 takes seconds."""
    dcgm_burn_in_level: int = Field(default=2, ge=1, le=4)
    """Level of DCGM's diagnostic in a burn-in that is long enough for it: 10 minutes for 2, 40 for 3, 120 for 4."""
    dcgm_exporter_url: str = ""
    """Page of dcgm-exporter on this node, e.g. `http://127.0.0.1:9400/metrics`; empty where it is not read."""

    kernel_log_seconds: float = Field(default=0.5, gt=0)
    """Between two looks at new kernel-log records: what a fault waits before new work is blocked."""
    kernel_log_rate: int = Field(default=20_000, ge=100)
    """Records a second; a flood above it waits in the kernel's ring, and what is overwritten there counts as a gap."""
    probe_seconds: float = Field(default=30, gt=0)
    """Between two passes of NVML; each costs a process start."""
    nvml_seconds: float = Field(default=20, gt=0)
    """Until a pass of NVML counts as silent; eight busy GPUs without persistence mode need up to ten."""
    nvml_events: Listening = Listening.WHEN_LOG_SILENT
    """When to listen to NVML's events, by a child of 10 MB that holds the GPUs open: whoever resets GPUs or replaces
    the driver by other means than ours must then stop the agent before. The kernel log tells the same Xids, so that
    by default they are wanted only while it cannot be read; `always` and `never` are the other choices."""
    nvml_misses: int = Field(default=2, ge=1)
    """Bad passes in a row before silence, or a GPU that is missing, is a fault; one may be a driver reload."""
    starting_seconds: float = Field(default=600, ge=0)
    """How long after a boot was first seen the driver may be missing: its installer needs minutes."""
    quiet_seconds: float = Field(default=900, gt=0)
    """After this long without a repeat, a fault of an application no longer counts."""
    heartbeat_seconds: float = Field(default=60, gt=0)
    """Between two writes of unchanged conditions; the controller calls them stale after five minutes."""
    reset_seconds: float = Field(default=180, gt=0)
    """For nvidia-smi to reset GPUs; a reset takes seconds, a hanging one never ends."""
    service_seconds: float = Field(default=60, gt=0)
    """For one host service to stop or start."""

    rank_dir: Path = Path(RANK_DIR)
    """A folder of the host that training pods mount too: their ranks' reports (`health/rank_reporter.py`)."""
    rank_seconds: float = Field(default=60, ge=0.1, le=600)
    """Length of a window of steps; ranks are judged by medians of it, over six of them."""
    rank_url: str = Field(default="", pattern=r"^(https?://[^/]+/.*)?$")
    """Where the controller fetches the ranks' page; without it, our port at `host_ip`, and nowhere without that."""
    host_ip: str = ""
    """Address of this node; from the downward API (status.hostIP)."""

    serve_host: str = "0.0.0.0"
    serve_port: int = Field(default=9465, ge=0, le=65535)
    """Port of /healthz, /readyz, /metrics and /ranks."""
    log_format: Literal["json", "console"] = "json"
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"

    @field_validator("nic_limits")
    @classmethod
    def _limits_can_be_read(cls, text: str) -> str:
        limits_from(text, ())
        return text

    def boot_id(self) -> str:
        """The id of the running boot. Raises OSError if it cannot be read."""
        return self.boot_id_path.read_text(encoding="ascii").strip()


class LookSettings(NodeSettings):
    """What one look at a machine must know, which may be no node of any cluster; for `sickbay check`."""

    node_name: str = ""
