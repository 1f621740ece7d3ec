"""The DCGM layer: what `dcgmi` says of the GPUs' health, and of a diagnostic of an idle node.

Listed in `health.layers`. The host engine can hang with the driver, so `dcgmi` is a child with a deadline. A node
without `dcgmi` is not judged by it; one on which it gives no answer is unknown. The rules are in `sickbay.dcgm`.
"""

import shlex
import shutil
from datetime import timedelta
from typing import Final

from health.active import KEPT, NEVER, usage_of
from health.children import ChildResult, leaked_children, run_child
from health.nvml import MAX_LEAKED
from health.settings import NodeSettings
from sickbay.checks import (
    ActiveDepth,
    CheckAbout,
    CheckCost,
    CheckLayer,
    CheckMoment,
    CheckOutcome,
    HostFacts,
    judged,
    not_applicable,
    starting,
    unknown,
)
from sickbay.dcgm.diag import judge_diag_output
from sickbay.dcgm.exit_codes import ENGINE_ABSENT, words_of_exit
from sickbay.dcgm.health import NOT_WATCHED, judge_health_output
from sickbay.dcgm.live import (
    HealthMemory,
    addresses,
    needs_addresses,
    seen_live,
    without_absent_links,
    without_remembered,
)
from sickbay.dcgm.reported import fault_of_exit
from sickbay.faults import ComponentKind

FILLED_AFTER: Final = timedelta(seconds=60)
"""What the watches must have sampled before their answer means anything (facts: detection, 3b)."""

DISCOVERY_DEADLINE: Final = timedelta(seconds=10)
QUICK_DEADLINE: Final = timedelta(seconds=60)
"""For a diagnostic of level 1, which takes seconds."""

LEAST_TIMES: Final = {
    4: timedelta(hours=2),
    3: timedelta(minutes=40),
    2: timedelta(minutes=10),
}
"""What a diagnostic of this level takes at most (facts: detection, 3c); a shorter burn-in has one of a lower level."""

_DELIVERY: Final = timedelta(seconds=3)


class Dcgmi:
    """The program, wherever it is."""

    def __init__(self, settings: NodeSettings) -> None:
        self._words = shlex.split(settings.dcgmi_command)

    @property
    def installed(self) -> bool:
        """Whether there is such a program here."""
        return bool(self._words) and shutil.which(self._words[0]) is not None

    def ask(self, arguments: str, deadline: timedelta) -> ChildResult:
        """Run it once. Blocking, at most for the deadline and a second; raises nothing."""
        if leaked_children() >= MAX_LEAKED:
            stuck = f"{leaked_children()} earlier children hang in the driver"
            return ChildResult(None, "", "", not_started=stuck)
        return run_child([*self._words, *arguments.split()], deadline)

    def live(self, outcome: CheckOutcome, moment: CheckMoment) -> CheckOutcome:
        """The outcome with times, boot and, as far as DCGM tells them, addresses."""
        known: dict[str, str] = {}
        if needs_addresses(outcome):
            known = addresses(self.ask("discovery -l", DISCOVERY_DEADLINE).stdout)
        return seen_live(outcome, moment, known)


class DcgmHealthCheck:
    """The health that DCGM keeps watching, whether or not the GPUs are at work."""

    def __init__(self, settings: NodeSettings) -> None:
        self._dcgmi = Dcgmi(settings)
        self._deadline = timedelta(seconds=settings.dcgm_seconds)
        self.about = CheckAbout(
            name="dcgm-health",
            layer=CheckLayer.DCGM,
            judges=(ComponentKind.GPU, ComponentKind.NVLINK, ComponentKind.NVSWITCH),
            cost=CheckCost.CHEAP,
            looks_at="dcgmi health -c: PCIe, NVLink, memory, InfoROM, heat, power, driver and NVSwitches as DCGM's"
            " watches have seen them; they are switched on where nobody has.",
            source="NVIDIA DCGM, health watches and error numbers; NVSentinel#1357, EKS node monitoring agent#266",
            thresholds=(
                "limits are DCGM's own: e.g. 100 CRC errors a second of an NVLink, 63 retired pages",
                f"no answer within {settings.dcgm_seconds:g} s is none (SICKBAY_DCGM_SECONDS)",
                "an Xid counts when DCGM first shows it; what it only remembers after a reset does not",
                "the program is SICKBAY_DCGMI_COMMAND; where it is not installed this is not judged",
            ),
            every=timedelta(minutes=1),
            deadline=2 * self._deadline + DISCOVERY_DEADLINE + _DELIVERY,
            fresh_for=timedelta(minutes=5),
        )

    def applies(self, host: HostFacts) -> str:
        """Empty if there may be GPUs."""
        return _without_gpus(host)

    def run(self, moment: CheckMoment) -> CheckOutcome:
        """Ask once; switch the watches on if nobody has."""
        if not self._dcgmi.installed:
            return not_applicable("dcgmi is not installed")
        memory = HealthMemory.of(moment)
        result = self._dcgmi.ask("health -c -j", self._deadline)
        if NOT_WATCHED.search(result.stdout + result.stderr):
            return self._watch(moment, memory)
        if memory.watched_since is not None and moment.now - memory.watched_since < FILLED_AFTER:
            return starting("DCGM's health watches have not sampled for a minute yet", moment.memory)
        if result.exit_code in ENGINE_ABSENT and moment.now - moment.boot_seen_at < self.about.starting_for:
            return starting("DCGM's host engine does not run yet", moment.memory)
        outcome = _judged(result, judge_health_output(result.stdout, result.exit_code), moment)
        return self._dcgmi.live(without_remembered(outcome, memory), moment)

    def _watch(self, moment: CheckMoment, memory: HealthMemory) -> CheckOutcome:
        result = self._dcgmi.ask("health -s a", self._deadline)
        if result.exit_code != 0:
            return unknown(f"DCGM's health watches cannot be switched on: {result.words}", moment.memory)
        now = memory.model_copy(update={"watched_since": moment.now})
        return starting("DCGM's health watches were off, and are on now", now.model_dump_json())


class DcgmDiagCheck:
    """A diagnostic of an idle node, deeper in a burn-in."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self._dcgmi = Dcgmi(settings)
        self.about = CheckAbout(
            name="dcgm-diag",
            layer=CheckLayer.DCGM,
            judges=(ComponentKind.GPU,),
            cost=CheckCost.EXCLUSIVE,
            looks_at="dcgmi diag -r LEVEL: software and settings, and from level 2 memory and PCIe, of all GPUs of an"
            " idle node. Configuration that it finds wrong is told and is no fault of hardware.",
            source="NVIDIA DCGM diagnostics and its error numbers; DCGM#158, #253",
            thresholds=(
                f"level {settings.dcgm_quick_level} when it is asked for (SICKBAY_DCGM_QUICK_LEVEL)",
                f"level {settings.dcgm_burn_in_level} in a burn-in (SICKBAY_DCGM_BURN_IN_LEVEL), or the highest below"
                " that fits its time: 10 minutes for level 2, 40 for 3, 120 for 4",
                "one at a time per host: while another runs this is not judged",
            ),
            every=NEVER,
            deadline=QUICK_DEADLINE + DISCOVERY_DEADLINE + timedelta(seconds=settings.nvml_seconds) + _DELIVERY,
            fresh_for=KEPT,
            passes=1,
        )

    def applies(self, host: HostFacts) -> str:
        """Empty if there may be GPUs."""
        return _without_gpus(host)

    def run(self, moment: CheckMoment) -> CheckOutcome:
        """Run a diagnostic as deep as the moment asks, if nobody uses the GPUs."""
        if moment.depth is ActiveDepth.NONE:
            return not_applicable("runs only when it is asked for, and while nobody uses the GPUs")
        if not self._dcgmi.installed:
            return not_applicable("dcgmi is not installed")
        idle = usage_of(self._settings).look()
        if idle.unjudged:
            return unknown(f"whether the GPUs are idle cannot be told: {'; '.join(idle.unjudged)}")
        if idle.left_out:
            return not_applicable("needs all GPUs of the node idle")
        level, deadline = self._level(moment)
        result = self._dcgmi.ask(f"diag -r {level} -j", deadline)
        outcome = judge_diag_output(result.stdout, result.exit_code, moment.expected_gpus)
        return self._dcgmi.live(_judged(result, outcome, moment), moment)

    def _level(self, moment: CheckMoment) -> tuple[int, timedelta]:
        if moment.depth is not ActiveDepth.BURN_IN:
            return self._settings.dcgm_quick_level, QUICK_DEADLINE
        wanted = self._settings.dcgm_burn_in_level
        fitting = [level for level, least in LEAST_TIMES.items() if level <= wanted and least <= moment.burn_in]
        return (max(fitting), moment.burn_in) if fitting else (1, QUICK_DEADLINE)


def dcgmi_checks(settings: NodeSettings) -> tuple[DcgmHealthCheck, DcgmDiagCheck]:
    """The checks of this module."""
    return (DcgmHealthCheck(settings), DcgmDiagCheck(settings))


def _judged(result: ChildResult, outcome: CheckOutcome | None, moment: CheckMoment) -> CheckOutcome:
    """The judgement of an answer; of none, or of one that is no report, why it is none."""
    if result.exit_code is None:
        return unknown(f"dcgmi: {result.words}", moment.memory)
    if outcome is not None:
        return without_absent_links(outcome, (moment.host.gpu_product,))
    words = words_of_exit(result.exit_code) if result.exit_code else "it printed no report"
    return judged(fault_of_exit(result.exit_code), f"dcgmi: {words}", moment.memory)


def _without_gpus(host: HostFacts) -> str:
    return "no NVIDIA GPU on the PCI bus" if host.pci_known and not host.pci_gpus else ""
