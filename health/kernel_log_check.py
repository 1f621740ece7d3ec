"""The kernel log of this boot as a check that looks once: for `sickbay check`, where no agent watches it all the time.

Run by `health.one_pass`, which needs no right to read `/dev/kmsg`: without it the check is unknown. The agent reads the
log by itself and all the time (`health.kernel_log`), and takes from here only what the check is about.
"""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Final

from health.kernel_log import KernelLogReader, KernelRecord
from health.settings import NodeSettings
from sickbay.checks import CheckAbout, CheckCost, CheckLayer, CheckMoment, CheckOutcome, HostFacts, judged, unknown
from sickbay.faults import ComponentKind
from sickbay.kernel_log import KernelLogScanner
from sickbay.node_conditions import CHECK_KERNEL_LOG

_READ_SECONDS: Final = 10.0
"""For a whole ring, which takes less than a second unless the device hangs."""

_OPEN_SECONDS: Final = 1.0
"""After which a log that is not there, or not for us, will not come."""

ABOUT_KERNEL_LOG: Final = CheckAbout(
    name=CHECK_KERNEL_LOG,
    layer=CheckLayer.KERNEL_LOG,
    judges=tuple(ComponentKind),
    cost=CheckCost.FREE,
    looks_at="Every record of /dev/kmsg from the start of the boot; by the agent also the journal, for what was"
    " overwritten before it came. Xid and SXid errors of the GPU driver, lost GPUs, NVLink, PCIe, memory, disks, file"
    " systems, network adapters, hung tasks.",
    source="NVIDIA's Xid catalogue and driver sources; gpud, gcm, NVSentinel, node-problem-detector",
    thresholds=(
        "silent: the log cannot be read for 30 s",
        "a flood above SICKBAY_KERNEL_LOG_RATE records a second waits in the kernel; what it overwrites is a gap",
        "a fault that asks for nothing goes after SICKBAY_QUIET_SECONDS without a repeat",
    ),
    every=timedelta(seconds=1),
    deadline=timedelta(seconds=_READ_SECONDS + _OPEN_SECONDS),
    fresh_for=timedelta(seconds=30),
)


class KernelLogCheck:
    """One reading of the whole log."""

    about = ABOUT_KERNEL_LOG

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings

    def applies(self, host: HostFacts) -> str:
        """Every machine has one."""
        del host
        return ""

    def run(self, moment: CheckMoment) -> CheckOutcome:
        """Read everything that the log still holds."""
        settings = self._settings
        reader = KernelLogReader(
            settings.kmsg_path, settings.kernel_log_rate, trust_user_records=settings.trust_user_records
        )
        reader.start()
        try:
            taken = reader.take_all(_OPEN_SECONDS)
            if not taken.caught_up and not taken.problem:
                rest = reader.take_all(_READ_SECONDS)
                taken = replace(rest, records=taken.records + rest.records)
        finally:
            reader.stop()
        scanner = KernelLogScanner(moment.boot_id or None)
        for record in taken.records:
            scanner.feed(record.text)
        unread = taken.problem or ("" if taken.caught_up else f"not read to its end within {_READ_SECONDS:g} s")
        if unread and not taken.records:
            return unknown(unread)
        return judged(scanner.faults(), unread or _lost(taken.records))


def _lost(records: tuple[KernelRecord, ...]) -> str:
    """What is missing between the records; the beginning of a long boot is long overwritten, and no gap."""
    lost = sum(max(0, later.sequence - earlier.sequence - 1) for earlier, later in pairwise(records))
    return f"{lost} records were overwritten before they were read" if lost else ""
