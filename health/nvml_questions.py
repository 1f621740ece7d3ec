"""What is asked of one GPU through NVML, question by question.

Used by `health.nvml_child` alone, hence nothing but the standard library and pynvml. A question raises NVMLError, or
answers with fields of `sickbay.gpu_readings.GpuAnswer`; one that this driver or this product does not know leaves the
others as they were. Nothing is judged here.
"""

import ctypes
from collections.abc import Callable, Iterable
from typing import Any, Final

import pynvml

FABRIC_VERSIONS_SINCE: Final = 550
"""First driver whose versioned fabric call may be looked up; before it, looking alone has ended programs (facts:
detection, 2)."""

_UNKNOWN_THERE: Final = (
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_DEPRECATED,
)
"""Answers to a question that this driver or this product does not know."""

_MEMORIES: Final = {"dram": pynvml.NVML_MEMORY_LOCATION_DRAM, "sram": pynvml.NVML_MEMORY_LOCATION_SRAM}
_SEVERITIES: Final = {
    "corrected": pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
    "uncorrected": pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
}
_LINK_COUNTERS: Final = {
    pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY: "replays",
    pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY: "recoveries",
    pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC: "crc_flit",
    pynvml.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS: "failed_recoveries",
    pynvml.NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS: "effective_errors",
    pynvml.NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER: "effective_ber",
}


def questions(version: str) -> dict[str, Callable[[Any], dict[str, Any]]]:
    """The questions by what they are about; who the GPU is comes first, since a hang may come with any."""
    return {
        "uuid": lambda handle: {"uuid": pynvml.nvmlDeviceGetUUID(handle)},
        "pci address": lambda handle: {"pci": pynvml.nvmlDeviceGetPciInfo(handle).busId},
        "name": lambda handle: {"name": pynvml.nvmlDeviceGetName(handle)},
        "recovery action": recovery_action,
        "row remapping": row_remapping,
        "processes": processes,
        "serial number": lambda handle: {"serial": pynvml.nvmlDeviceGetSerial(handle)},
        "ECC mode": ecc_mode,
        "volatile ECC errors": lambda handle: {"ecc_volatile": ecc_counts(handle, pynvml.NVML_VOLATILE_ECC)},
        "aggregate ECC errors": lambda handle: {"ecc_aggregate": ecc_counts(handle, pynvml.NVML_AGGREGATE_ECC)},
        "SRAM error limit": sram_threshold,
        "spare rows": spare_rows,
        "retired pages": retired_pages,
        "clock reasons": clock_reasons,
        "temperature": lambda handle: {"temperature": pynvml.nvmlDeviceGetTemperature(handle, 0)},
        "slowdown temperature": lambda handle: {"slowdown_temperature": limit_of(handle, 1)},
        "shutdown temperature": lambda handle: {"shutdown_temperature": limit_of(handle, 0)},
        "temperature margin": lambda handle: {"margin": pynvml.nvmlDeviceGetMarginTemperature(handle)},
        "memory temperature": lambda handle: {"memory_temperature": field(handle, pynvml.NVML_FI_DEV_MEMORY_TEMP)},
        "memory temperature limit": lambda handle: {"memory_temperature_limit": limit_of(handle, 2)},
        "NVLinks": nvlinks,
        "fabric": lambda handle: {"fabric": fabric(handle, version)},
        "GSP firmware": gsp_firmware,
        "persistence mode": lambda handle: {"persistence": bool(pynvml.nvmlDeviceGetPersistenceMode(handle))},
        "MIG mode": mig_mode,
        "device file": lambda handle: {"minor": pynvml.nvmlDeviceGetMinorNumber(handle)},
        "PCIe width": pcie_width,
        "PCIe generation": pcie_generation,
        "PCIe replays": lambda handle: {"pcie_replays": field(handle, pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER)},
    }


def recovery_action(handle: Any) -> dict[str, Any]:
    """Field 230, the driver's own verdict; drivers that do not know it answer with an error for the field."""
    return {"recovery_action": field(handle, pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)}


def row_remapping(handle: Any) -> dict[str, Any]:
    """Rows of memory that were remapped, whether one waits for a reset, and whether one could not be."""
    correctable, uncorrectable, pending, failed = pynvml.nvmlDeviceGetRemappedRows(handle)
    return {
        "remapped_correctable": correctable,
        "remapped_uncorrectable": uncorrectable,
        "remap_pending": bool(pending),
        "remap_failed": bool(failed),
    }


def spare_rows(handle: Any) -> dict[str, Any]:
    """Banks of memory by the spare rows that are left to them."""
    banks = pynvml.nvmlDeviceGetRowRemapperHistogram(handle)
    left = {"most": banks.max, "high": banks.high, "partial": banks.partial, "low": banks.low, "none": banks.none}
    return {"remap_spares": left}


def retired_pages(handle: Any) -> dict[str, Any]:
    """Pages of memory out of use, on GPUs before Ampere."""
    pages = {
        "single_bit": len(pynvml.nvmlDeviceGetRetiredPages(handle, 0)),
        "double_bit": len(pynvml.nvmlDeviceGetRetiredPages(handle, 1)),
        "pending": bool(pynvml.nvmlDeviceGetRetiredPagesPendingStatus(handle)),
    }
    return {"retired_pages": pages}


def processes(handle: Any) -> dict[str, Any]:
    """Who computes on the GPU, as numbered in our own process namespace."""
    pids = [process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    return {"process_count": len(pids), "pids": pids}


def ecc_mode(handle: Any) -> dict[str, Any]:
    """Whether ECC is on, and will be after a reboot."""
    current, pending = pynvml.nvmlDeviceGetEccMode(handle)
    return {"ecc_enabled": bool(current), "ecc_pending": bool(pending)}


def ecc_counts(handle: Any, counter: int) -> dict[str, int]:
    """Memory errors of one kind of counter: all together, and by memory where the product tells them apart."""
    counts = {word: pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, counter) for word, kind in _SEVERITIES.items()}
    for memory, place in _MEMORIES.items():
        for word, kind in _SEVERITIES.items():
            try:
                counts[f"{memory}_{word}"] = pynvml.nvmlDeviceGetMemoryErrorCounter(handle, kind, counter, place)
            except pynvml.NVMLError as error:
                unknown_there(error)
    return counts


def sram_threshold(handle: Any) -> dict[str, Any]:
    """Whether the GPU itself counts too many SRAM errors."""
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    pynvml.nvmlDeviceGetSramEccErrorStatus(handle, ctypes.byref(status))
    return {"sram_threshold_exceeded": bool(status.bThresholdExceeded)}


def clock_reasons(handle: Any) -> dict[str, Any]:
    """Why the clocks are low; the call has its older name on drivers before 535."""
    try:
        return {"clock_reasons": pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)}
    except pynvml.NVMLError_FunctionNotFound:
        return {"clock_reasons": pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)}


def limit_of(handle: Any, threshold: int) -> int:
    """One of NVML's temperature limits, in degrees Celsius."""
    return int(pynvml.nvmlDeviceGetTemperatureThreshold(handle, threshold))


def nvlinks(handle: Any) -> dict[str, Any]:
    """State and counters of each NVLink; none where the product has none, or they are off for MIG."""
    states: dict[int, bool] = {}
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            states[link] = bool(pynvml.nvmlDeviceGetNvLinkState(handle, link))
        except pynvml.NVMLError_InvalidArgument:
            break
        except pynvml.NVMLError as error:
            unknown_there(error)
    counters = fields(handle, [(number, link) for link, up in states.items() if up for number in _LINK_COUNTERS])
    links: list[dict[str, Any]] = [
        {"index": link, "active": up}
        | {name: counters[number, link] for number, name in _LINK_COUNTERS.items() if (number, link) in counters}
        for link, up in states.items()
    ]
    for link_answer in links:
        if "effective_ber" in link_answer:
            link_answer["effective_ber"] = error_rate(int(link_answer["effective_ber"]))
    return {"links": links}


def error_rate(packed: int) -> float:
    """NVML's packed bit error rate as a number: four bits of mantissa above eight of a negative exponent of ten."""
    return float((packed >> 8 & 0xF) * 10.0 ** -(packed & 0xFF))


def fabric(handle: Any, version: str) -> dict[str, Any]:
    """How the GPU stands with the fabric manager, by the newest form of the question that the driver knows."""
    major = version.split(".")[0]
    if major.isdigit() and int(major) >= FABRIC_VERSIONS_SINCE:
        for form in (pynvml.c_nvmlGpuFabricInfo_v3_t, pynvml.c_nvmlGpuFabricInfo_v2_t):
            try:
                info = form()
                pynvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
                return fabric_answer(info)
            except pynvml.NVMLError as error:
                if error.value == pynvml.NVML_ERROR_NOT_SUPPORTED:
                    raise
                unknown_there(error)
    info = pynvml.c_nvmlGpuFabricInfo_t()
    pynvml.nvmlDeviceGetGpuFabricInfo(handle, ctypes.byref(info))
    return fabric_answer(info)


def fabric_answer(info: Any) -> dict[str, Any]:
    """One form of the fabric's structure; the older ones lack mask and summary."""
    return {
        "state": info.state,
        "status": info.status,
        "cluster_uuid": bytes(info.clusterUuid).hex(),
        "clique": info.cliqueId,
        "health_mask": getattr(info, "healthMask", None),
        "health_summary": getattr(info, "healthSummary", None),
    }


def gsp_firmware(handle: Any) -> dict[str, Any]:
    """Whether the GPU runs the driver's firmware, and which."""
    enabled, _ = pynvml.nvmlDeviceGetGspFirmwareMode(handle, ctypes.c_uint(), ctypes.c_uint())
    version = pynvml.nvmlDeviceGetGspFirmwareVersion(handle) if enabled else b""
    text = version.decode(errors="replace") if isinstance(version, bytes) else str(version)
    return {"gsp_enabled": bool(enabled), "gsp_version": text}


def mig_mode(handle: Any) -> dict[str, Any]:
    """Whether MIG is on, and the devices it has made."""
    current, pending = pynvml.nvmlDeviceGetMigMode(handle)
    answer: dict[str, Any] = {"mig_enabled": bool(current), "mig_pending": bool(pending)}
    if current:
        places = range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle))
        devices = [device for place in places if (device := mig_device(handle, place)) is not None]
        answer["mig_instances"] = [pynvml.nvmlDeviceGetName(device) for device in devices]
        answer["mig_uuids"] = [pynvml.nvmlDeviceGetUUID(device) for device in devices]
    return answer


def mig_device(handle: Any, place: int) -> Any:
    """The handle of the MIG device at one place; None if there is none."""
    try:
        return pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
    except pynvml.NVMLError_NotFound:
        return None


def pcie_width(handle: Any) -> dict[str, Any]:
    """PCIe lanes in use, and at most."""
    current = pynvml.nvmlDeviceGetCurrPcieLinkWidth(handle)
    return {"pcie_width": current, "pcie_width_max": pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle)}


def pcie_generation(handle: Any) -> dict[str, Any]:
    """PCIe generation in use, and at most."""
    current = pynvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)
    return {"pcie_generation": current, "pcie_generation_max": pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)}


def field(handle: Any, number: int) -> int:
    """The value of one field of the GPU. Raises NVMLError with the field's own error."""
    (value,) = pynvml.nvmlDeviceGetFieldValues(handle, [number])
    if value.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(value.nvmlReturn)
    return value_of(value)


def fields(handle: Any, wanted: Iterable[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Values of many fields, by field and link; those that are not known there are left out."""
    pairs = list(wanted)
    found: dict[tuple[int, int], int] = {}
    for pair, value in zip(pairs, pynvml.nvmlDeviceGetFieldValues(handle, pairs) if pairs else (), strict=True):
        if value.nvmlReturn == pynvml.NVML_SUCCESS:
            found[pair] = value_of(value)
        else:
            unknown_there(pynvml.NVMLError(value.nvmlReturn))
    return found


def value_of(value: Any) -> int:
    """A field's value, by the type that it says it has."""
    names = {1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
    return int(getattr(value.value, names.get(value.valueType, "ullVal")))


def unknown_there(error: Any) -> None:
    """Pass over an answer that says the question is not known there; raise any other."""
    if error.value not in _UNKNOWN_THERE:
        raise error
