"""Outputs of nvidia-smi of our own making, in the tool's shapes, with values that a test changes by name."""

from collections.abc import Mapping

H200 = "NVIDIA H200"
A10G = "NVIDIA A10G"

Changes = Mapping[int, Mapping[str, str]]
"""By GPU: what is printed instead of a value, by its label in `LABELS`."""

LABELS = {
    "name": H200,
    "mig": "Disabled",
    "action": "None",
    "slowdown": "Not Active",
    "thermal": "Not Active",
    "brake": "Not Active",
    "temp": "41 C",
    "used": "3 MiB",
    "util": "0 %",
    "ecc": "Enabled",
    "sram": "0",
    "dram": "0",
    "threshold": "No",
    "repair": "No",
    "rows": "0",
    "pending": "No",
    "failure": "No",
    "state": "Completed",
    "status": "Success",
    "summary": "Healthy",
    "route": "False",
}


def bus(index: int) -> str:
    """The printed PCI address of a GPU."""
    return f"00000000:{0x1A + 0x11 * index:02X}:00.0"


def pci(index: int) -> str:
    """The same as everywhere in Sickbay."""
    return bus(index).lower()[4:-2]


def uuid(index: int) -> str:
    """The UUID of a GPU."""
    return f"GPU-7d0c0000-0000-4000-8000-00000000000{index}"


def query_text(count: int = 2, changes: Changes | None = None) -> str:
    """`nvidia-smi -q`."""
    head = [
        "",
        "==============NVSMI LOG==============",
        "",
        "Timestamp                                 : Sun Nov 29 08:11:05 2026",
        "Driver Version                            : 575.57.08",
        "CUDA Version                              : 12.9",
        "",
        f"Attached GPUs                             : {count}",
    ]
    return "\n".join([*head, *(line for index in range(count) for line in _block(index, changes)), ""])


def _block(index: int, changes: Changes | None) -> list[str]:
    value = LABELS | dict((changes or {}).get(index, {}))
    return f"""GPU {bus(index)}
    Product Name                          : {value["name"]}
    Persistence Mode                      : Enabled
    MIG Mode
        Current                           : {value["mig"]}
        Pending                           : {value["mig"]}
    GPU UUID                              : {uuid(index)}
    Minor Number                          : {index}
    GPU Reset Status
        Reset Required                    : Requested functionality has been deprecated
        Drain and Reset Recommended       : Requested functionality has been deprecated
    GPU Recovery Action                   : {value["action"]}
    GSP Firmware Version                  : 575.57.08
    PCI
        Bus Id                            : {bus(index)}
        GPU Link Info
            Link Width
                Max                       : 16x
                Current                   : 16x
    Fan Speed                             : N/A
    Performance State                     : P0
    Clocks Event Reasons
        Idle                              : Active
        SW Power Cap                      : Not Active
        HW Slowdown                       : {value["slowdown"]}
            HW Thermal Slowdown           : {value["thermal"]}
            HW Power Brake Slowdown       : {value["brake"]}
        SW Thermal Slowdown               : Not Active
    FB Memory Usage
        Total                             : 143771 MiB
        Used                              : {value["used"]}
    Utilization
        GPU                               : {value["util"]}
    ECC Mode
        Current                           : {value["ecc"]}
        Pending                           : {value["ecc"]}
    ECC Errors
        Volatile
            SRAM Correctable              : 0
            SRAM Uncorrectable Parity     : {value["sram"]}
            SRAM Uncorrectable SEC-DED    : {value["sram"]}
            DRAM Correctable              : 0
            DRAM Uncorrectable            : {value["dram"]}
        Aggregate
            SRAM Correctable              : 0
            DRAM Uncorrectable            : {value["dram"]}
            SRAM Threshold Exceeded       : {value["threshold"]}
        Channel Repair Pending            : {value["repair"]}
    Remapped Rows
        Correctable Error                 : 0
        Uncorrectable Error               : {value["rows"]}
        Pending                           : {value["pending"]}
        Remapping Failure Occurred        : {value["failure"]}
    Temperature
        GPU Current Temp                  : {value["temp"]}
        Memory Current Temp               : 39 C
    Clocks
        Graphics                          : 345 MHz
    Fabric
        State                             : {value["state"]}
        Status                            : {value["status"]}
        ClusterUUID                       : 00000000-0000-0000-0000-000000000000
        Health
            Summary                       : {value["summary"]}
            Bandwidth                     : Full
            Route Unhealthy               : {value["route"]}
            Incorrect Configuration       : None
    Processes                             : None
""".splitlines()


def query_xml(count: int = 2, changes: Changes | None = None) -> str:
    """`nvidia-smi -q -x`."""
    gpus = "\n".join(_element(index, changes) for index in range(count))
    return f"""<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
	<driver_version>575.57.08</driver_version>
	<attached_gpus>{count}</attached_gpus>
{gpus}
</nvidia_smi_log>
"""


def _element(index: int, changes: Changes | None) -> str:
    value = LABELS | dict((changes or {}).get(index, {}))
    return f"""	<gpu id="{bus(index)}">
		<product_name>{value["name"]}</product_name>
		<mig_mode>
			<current_mig>{value["mig"]}</current_mig>
			<pending_mig>{value["mig"]}</pending_mig>
		</mig_mode>
		<uuid>{uuid(index)}</uuid>
		<gpu_recovery_action>{value["action"]}</gpu_recovery_action>
		<performance_state>P0</performance_state>
		<clocks_event_reasons>
			<clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
			<clocks_event_reason_hw_slowdown>{value["slowdown"]}</clocks_event_reason_hw_slowdown>
			<clocks_event_reason_hw_thermal_slowdown>{value["thermal"]}</clocks_event_reason_hw_thermal_slowdown>
			<clocks_event_reason_hw_power_brake_slowdown>{value["brake"]}</clocks_event_reason_hw_power_brake_slowdown>
		</clocks_event_reasons>
		<fb_memory_usage>
			<used>{value["used"]}</used>
		</fb_memory_usage>
		<utilization>
			<gpu_util>{value["util"]}</gpu_util>
		</utilization>
		<ecc_mode>
			<current_ecc>{value["ecc"]}</current_ecc>
			<pending_ecc>{value["ecc"]}</pending_ecc>
		</ecc_mode>
		<ecc_errors>
			<volatile>
				<sram_uncorrectable_parity>{value["sram"]}</sram_uncorrectable_parity>
				<dram_uncorrectable>{value["dram"]}</dram_uncorrectable>
			</volatile>
			<aggregate>
				<sram_threshold_exceeded>{value["threshold"]}</sram_threshold_exceeded>
			</aggregate>
			<channel_repair_pending>{value["repair"]}</channel_repair_pending>
		</ecc_errors>
		<remapped_rows>
			<remapped_row_unc>{value["rows"]}</remapped_row_unc>
			<remapped_row_pending>{value["pending"]}</remapped_row_pending>
			<remapped_row_failure>{value["failure"]}</remapped_row_failure>
		</remapped_rows>
		<temperature>
			<gpu_temp>{value["temp"]}</gpu_temp>
		</temperature>
		<fabric>
			<state>{value["state"]}</state>
			<status>{value["status"]}</status>
			<health>
				<summary>{value["summary"]}</summary>
				<route_unhealthy>{value["route"]}</route_unhealthy>
			</health>
		</fabric>
		<processes>
		</processes>
	</gpu>"""


_CSV_NAMES = {
    "index": "",
    "count": "",
    "name": "name",
    "uuid": "",
    "pci.bus_id": "",
    "temperature.gpu": "temp",
    "utilization.gpu [%]": "util",
    "memory.used [MiB]": "used",
    "mig.mode.current": "mig",
    "ecc.mode.current": "ecc",
    "ecc.errors.uncorrected.volatile.dram": "dram",
    "remapped_rows.pending": "pending",
    "remapped_rows.failure": "failure",
    "clocks_event_reasons.active": "",
}


def csv_rows(count: int = 2, changes: Changes | None = None, without: tuple[str, ...] = ()) -> str:
    """`nvidia-smi --query-gpu=... --format=csv`."""
    names = [name for name in _CSV_NAMES if name not in without]
    rows = []
    for index in range(count):
        value = LABELS | dict((changes or {}).get(index, {}))
        own = {
            "index": str(index),
            "count": str(count),
            "uuid": uuid(index),
            "pci.bus_id": bus(index),
            "clocks_event_reasons.active": "0x0000000000000001",
        }
        rows.append(", ".join(own.get(name) or value[_CSV_NAMES[name]] for name in names))
    return "\n".join([", ".join(names), *rows, ""])


def table(count: int = 2, changes: Changes | None = None) -> str:
    """Plain `nvidia-smi`."""
    border = "+-----------------------------------------+------------------------+----------------------+"
    head = """+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 575.57.08              Driver Version: 575.57.08      CUDA Version: 12.9     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
"""
    tail = """
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|=========================================================================================|
|  No running processes found                                                             |
+-----------------------------------------------------------------------------------------+
"""
    rows = []
    for index in range(count):
        value = {"fan": "N/A", "perf": "P0", "power": "77W", "temp": "41C", "util": "0%", "name": H200, "dram": "0"}
        value |= dict((changes or {}).get(index, {}))
        rows.append(
            f"| {index:3}  {value['name']:<24} Off | {bus(index):>18} Off | {value['dram']:>20} |\n"
            f"| {value['fan']:<4} {value['temp']:<5} {value['perf']:<4} {value['power']:>14} / 700W | "
            f"    3MiB / 143771MiB | {value['util']:>8}      Default |\n"
            f"|                                         |                        | {'Disabled':>20} |\n{border}\n"
        )
    return head + "".join(rows) + tail
