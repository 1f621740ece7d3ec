"""The page of dcgm-exporter as a check: a second pair of eyes that a cluster already pays for.

Listed in `health.layers`. The exporter's own /health stays green while DCGM is wedged (NVSentinel#1574), so that only
fresh samples count; its own word on itself is not asked. The rules are in `sickbay.dcgm.exporter`.
"""

import sys
from datetime import timedelta
from pathlib import Path
from typing import Final

from health import dcgm_exporter_child
from health.children import run_child
from health.settings import NodeSettings
from sickbay.checks import (
    CheckAbout,
    CheckCost,
    CheckLayer,
    CheckMoment,
    CheckOutcome,
    HostFacts,
    starting,
    unknown,
)
from sickbay.dcgm.exporter import FRESH, judge_page
from sickbay.dcgm.last_xids import remembered_xids
from sickbay.dcgm.live import seen_live
from sickbay.faults import ComponentKind

DEADLINE: Final = timedelta(seconds=15)


class DcgmExporterCheck:
    """What dcgm-exporter tells of this node's GPUs."""

    def __init__(self, settings: NodeSettings) -> None:
        self._url = settings.dcgm_exporter_url
        self.about = CheckAbout(
            name="dcgm-exporter",
            layer=CheckLayer.DCGM,
            judges=(ComponentKind.GPU,),
            cost=CheckCost.CHEAP,
            looks_at="dcgm-exporter's page: last Xid, row remapping, ECC, retired pages, NVLink errors, fabric manager,"
            " recovery action and health of each GPU, as far as its operator has switched them on.",
            source="NVIDIA dcgm-exporter, its issues #95 and #190; NVSentinel#1574",
            thresholds=(
                "an Xid counts when it changes, since the number of the last one never returns to 0",
                "DCGM's blanks are no numbers; a family of fewer GPUs than the others is a torn page",
                f"samples older than {FRESH.total_seconds() / 60:g} minutes are none",
                "the page is SICKBAY_DCGM_EXPORTER_URL; without it this is not judged",
            ),
            every=timedelta(minutes=1),
            deadline=DEADLINE + timedelta(seconds=2),
            fresh_for=timedelta(minutes=5),
        )

    def applies(self, host: HostFacts) -> str:
        """Empty if there is a page to read, and may be GPUs."""
        if not self._url:
            return "no page is named (SICKBAY_DCGM_EXPORTER_URL)"
        return "no NVIDIA GPU on the PCI bus" if host.pci_known and not host.pci_gpus else ""

    def run(self, moment: CheckMoment) -> CheckOutcome:
        """Fetch the page once."""
        # Isolated, and without site-packages, which the child does not need and which cost more than the page.
        command = [sys.executable, "-I", "-S", str(Path(dcgm_exporter_child.__file__)), self._url]
        result = run_child(command, DEADLINE)
        if result.exit_code != 0:
            words = f"dcgm-exporter: {result.words}"
            if moment.now - moment.boot_seen_at < self.about.starting_for:
                return starting(words, moment.memory)
            return unknown(words, moment.memory)
        outcome = judge_page(result.stdout, moment.expected_gpus, moment.now, remembered_xids(moment.memory))
        return seen_live(outcome, moment, {})
