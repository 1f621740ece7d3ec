"""The GPU driver's kernel module against the library that programs load, and whether the module is there at all.

Called by `health.host`. The two come by one package and differ after an upgrade without a reboot: new programs then
fail, and running ones do not, until somebody reloads the driver (detection 8.25). No hardware is at fault.
"""

import re
from typing import Final

from sickbay.checks import CheckMoment, CheckOutcome, healthy, judged, starting, unknown
from sickbay.file_readings import FileReadings, Wanted
from sickbay.host_layer.said import DRIVER, seen, young

_MODULES: Final = "/sys/module"
_MODULE_VERSION: Final = "/sys/module/nvidia/version"
_PROC_VERSION: Final = "/proc/driver/nvidia/version"

_LIBRARY_FOLDERS: Final = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    # The GPU Operator's driver container, Google's installer, and Bottlerocket.
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "/run/nvidia/driver/usr/lib/aarch64-linux-gnu",
    "/run/nvidia/driver/usr/lib64",
    "/home/kubernetes/bin/nvidia/lib64",
    "/x86_64-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla",
    "/aarch64-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla",
)
_LIBRARIES: Final = tuple(f"{folder}/libnvidia-ml.so.1" for folder in _LIBRARY_FOLDERS)

DRIVER_WANTED: Final = Wanted(files=(_MODULE_VERSION, _PROC_VERSION), listings=(_MODULES,), links=_LIBRARIES)

_LINK_TARGET: Final = re.compile(r"libnvidia-ml\.so\.(\d+(?:\.\d+)+)$")
_VERSION: Final = re.compile(r"\b(\d{3,}(?:\.\d+){1,2})\b")


def judge_driver_files(readings: FileReadings, moment: CheckMoment, bound_seconds: float) -> CheckOutcome:
    """What is wrong with the driver's files; within `bound_seconds` of the boot the module may still be coming."""
    if _MODULES not in readings.names:
        return unknown(readings.why(_MODULES))
    modules = readings.names[_MODULES]
    if "nvidia" not in modules:
        words = "the kernel module nvidia is not loaded"
        absent = seen("driver-not-loaded", DRIVER, moment, words)
        return starting(words) if young(moment, bound_seconds) else judged((absent,))
    loaded = _module_version(readings)
    if not loaded:
        return unknown(f"the version of the loaded kernel module cannot be told: {readings.why(_MODULE_VERSION)}")
    libraries = {path: version for path in _LIBRARIES if (version := _library_version(readings, path))}
    if libraries and loaded not in libraries.values():
        told = ", ".join(f"{path} is of version {version}" for path, version in libraries.items())
        evidence = f"the loaded kernel module is of version {loaded}, and {told}"
        return judged((seen("driver-mismatch", DRIVER, moment, evidence, "cure: reload the driver, or reboot"),))
    compared = "" if libraries else "no library of it was found to compare with"
    # A fresh machine on which nothing has used CUDA yet is well.
    idle = "" if "nvidia_uvm" in modules else "nvidia_uvm is not loaded before the first program uses CUDA"
    return healthy("; ".join(filter(None, (f"driver {loaded}", compared, idle))))


def _module_version(readings: FileReadings) -> str:
    text = readings.texts.get(_MODULE_VERSION) or readings.texts.get(_PROC_VERSION, "").partition("\n")[0]
    found = _VERSION.search(text)
    return found[1] if found else ""


def _library_version(readings: FileReadings, path: str) -> str:
    found = _LINK_TARGET.search(readings.links.get(path, ""))
    return found[1] if found else ""
