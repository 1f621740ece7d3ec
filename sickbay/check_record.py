"""What is known of one check from its runs so far: the rule from its outcomes to what the node is told.

Called by the agent's schedule after each run. A run says what it sees; this says what holds: silence counts up to a
fault, a fault that disrupts stays open until a proof, one that asks for less goes after some runs without it, and one
that comes and goes is held (facts: detection, 7 and 10.4). All of it is in one value per boot, which the agent keeps
on the disk: a restart of the agent changes nothing. What a kernel log shows is in `sickbay.open_faults`.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from sickbay.catalogue import fault_of, lookup
from sickbay.checks import CheckAbout, CheckOutcome, CheckReport, CheckResult, unknown
from sickbay.faults import Component, ComponentKind, Fault, FaultClass, Rung, update_faults
from sickbay.model import Frozen
from sickbay.open_faults import cured_by_reset

FLAPS: Final = 3
"""When one fault goes for the third time within `FLAP_WINDOW`, it stays: coming and going is no recovery."""

FLAP_WINDOW: Final = timedelta(hours=12)
"""gpud's rule for flapping InfiniBand links (facts: detection, 7)."""

_DEPARTURES_KEPT: Final = 256
"""Departures remembered per check; a check that names its faults anew each time must not fill the memory."""

_SILENT: Final = "check-silent"


class CheckRun(Frozen):
    """One run of a check."""

    at: datetime
    """When it began."""
    outcome: CheckOutcome
    answered: bool = True
    """False if it timed out, raised, or could not be started: then the outcome says why, and nothing else."""
    seconds: float = 0.0


class HeldFault(Frozen):
    """A fault that a check has shown in this boot and that nothing has disproved yet."""

    fault: Fault
    absent: int = 0
    """Whole runs in a row that did not show it."""
    reset_at: datetime | None = None
    """When a reset was proven that cures it; the next whole run without it ends it."""
    flapping: bool = False


class Departure(Frozen):
    """A fault that went."""

    identity: tuple[str, str, str, str]
    at: datetime


class CheckRecord(Frozen):
    """The runs of one check in one boot, as far as they still matter."""

    name: str
    result: CheckResult = CheckResult.UNKNOWN
    """What the last run said; `starting` past its bound is unknown."""
    why: str = "has not run yet"
    ran_at: datetime | None = None
    """When the last run began; None before the first."""
    seconds: float = 0.0
    bad_runs: int = 0
    """Runs in a row that could not judge."""
    dark_since: datetime | None = None
    """When the first of them began."""
    held: tuple[HeldFault, ...] = ()
    departed: tuple[Departure, ...] = ()
    memory: str = ""
    """What the check asked to be remembered."""

    def essence(self) -> tuple[object, ...]:
        """What is worth telling or keeping at once; times alone are not."""
        faults = tuple((entry.fault.identity, entry.fault.rung, entry.flapping, entry.reset_at) for entry in self.held)
        return self.result, self.bad_runs, faults


def bounded_start(run: CheckRun, about: CheckAbout, boot_seen_at: datetime) -> CheckOutcome:
    """What a run said, except that `starting` is no answer any more once its time is over."""
    outcome = run.outcome
    if outcome.result is not CheckResult.STARTING or run.at - boot_seen_at < about.starting_for:
        return outcome
    minutes = about.starting_for.total_seconds() / 60
    return unknown(f"still starting {minutes:g} minutes after the boot: {outcome.why}", outcome.memory)


def after_run(record: CheckRecord, about: CheckAbout, run: CheckRun, boot_seen_at: datetime) -> CheckRecord:
    """The record after one more run."""
    outcome = bounded_start(run, about, boot_seen_at)
    bad = outcome.result is CheckResult.UNKNOWN
    held, departed = _held_after(record, about, outcome, run.at)
    return record.model_copy(
        update={
            "result": outcome.result,
            "why": outcome.why,
            "ran_at": run.at,
            "seconds": run.seconds,
            "bad_runs": record.bad_runs + 1 if bad else 0,
            "dark_since": (record.dark_since or run.at) if bad else None,
            "held": held,
            "departed": departed,
            # A run that was given up has nothing to say on what to remember.
            "memory": outcome.memory if run.answered else record.memory,
        }
    )


def after_reset(record: CheckRecord, pcis: tuple[str, ...], at: datetime) -> CheckRecord:
    """The record once a reset of these GPUs (all of them, if none is named) is proven.

    A whole run that begins after it and does not show a fault that the reset cures ends that fault.
    """
    held = tuple(
        entry.model_copy(update={"reset_at": at}) if cured_by_reset(entry.fault, pcis) else entry
        for entry in record.held
    )
    return record.model_copy(update={"held": held})


def report_of(record: CheckRecord, about: CheckAbout, now: datetime) -> CheckReport:
    """The check as it stands: its last answer as long as that is fresh, with every fault that it holds open."""
    result, why = record.result, record.why
    if stale := _staleness(record, about, now):
        result, why = CheckResult.UNKNOWN, stale
    elif _lapsed(record, about, now):
        result, why = CheckResult.NOT_APPLICABLE, "runs only when it is asked for, and was last asked long ago"
    faults = tuple(_told(entry) for entry in record.held)
    if faults and result in (CheckResult.HEALTHY, CheckResult.NOT_APPLICABLE):
        result, why = CheckResult.FAULTS, "not seen now, and not proven gone"
    return CheckReport(
        name=record.name,
        layer=about.layer,
        result=result,
        why=why,
        seconds=record.seconds,
        at=record.ran_at or now,
        faults=faults,
    )


def silence_of(record: CheckRecord, about: CheckAbout, now: datetime, boot_id: str) -> Fault | None:
    """The fault of a check that cannot judge, if it cannot; new work is blocked for it after `about.misses` runs.

    A check that has never run is no fault yet: whoever runs it has just begun.
    """
    if record.ran_at is None:
        return None
    stale = _staleness(record, about, now)
    if not stale and not record.bad_runs:
        return None
    lasts = bool(stale) or record.bad_runs >= about.misses
    own_code = f"{record.name}-silent"
    if lookup(own_code).known:
        # Such a code means a silence that lasts.
        return _silence(own_code, record, stale or record.why, boot_id) if lasts else None
    fault = _silence(_SILENT, record, stale or record.why, boot_id)
    return fault.model_copy(update={"rung": Rung.BLOCK_NEW_WORK}) if lasts else fault


def _silence(code: str, record: CheckRecord, why: str, boot_id: str) -> Fault:
    monitor = Component(kind=ComponentKind.MONITOR, id=record.name)
    return fault_of(code, monitor, seen=record.dark_since or record.ran_at, boot_id=boot_id, evidence=(why,))


def _staleness(record: CheckRecord, about: CheckAbout, now: datetime) -> str:
    """Why the last answer of a check that runs by itself does not count any more; empty if it does."""
    if about.every == timedelta() or record.ran_at is None or now - record.ran_at <= about.fresh_for:
        return ""
    return f"its last answer is older than {about.fresh_for.total_seconds():g} s"


def _lapsed(record: CheckRecord, about: CheckAbout, now: datetime) -> bool:
    """Whether a check that runs only when it is asked for was well so long ago that this says nothing any more."""
    if about.every != timedelta() or record.ran_at is None or record.result is not CheckResult.HEALTHY:
        return False
    return now - record.ran_at > about.fresh_for


def _held_after(
    record: CheckRecord, about: CheckAbout, outcome: CheckOutcome, at: datetime
) -> tuple[tuple[HeldFault, ...], tuple[Departure, ...]]:
    """The faults that are open after a run, and what went, now and lately."""
    shown = {fault.identity: fault for fault in update_faults((), outcome.faults)}
    # What was left unjudged may be where the fault is; a run is whole only if it judged everything.
    whole = outcome.result is CheckResult.HEALTHY or (outcome.result is CheckResult.FAULTS and not outcome.why)
    departed = [departure for departure in record.departed if at - departure.at < FLAP_WINDOW]
    kept: list[HeldFault] = []
    for entry in record.held:
        again = shown.pop(entry.fault.identity, None)
        if again is not None:
            kept.append(HeldFault(fault=_seen_again(entry.fault, again, about), flapping=entry.flapping))
            continue
        absent = entry.model_copy(update={"absent": entry.absent + 1}) if whole else entry
        ended = whole and _ends(absent, about, at)
        if ended:
            departed.append(Departure(identity=entry.fault.identity, at=at))
        if ended and _flaps(absent, about, departed):
            kept.append(absent.model_copy(update={"flapping": True}))
        elif not ended:
            kept.append(absent)
    kept += [HeldFault(fault=fault) for fault in shown.values()]
    return tuple(kept), tuple(departed[-_DEPARTURES_KEPT:])


def _ends(entry: HeldFault, about: CheckAbout, at: datetime) -> bool:
    """Whether a fault that a whole run at `at` did not show is over."""
    if about.withdraws or (entry.reset_at is not None and entry.reset_at <= at):
        return True
    return not entry.fault.rung.disrupts and not entry.flapping and entry.absent >= about.passes


def _flaps(entry: HeldFault, about: CheckAbout, departed: Iterable[Departure]) -> bool:
    """Whether a fault that goes now has come and gone too often to be believed gone once more."""
    if about.withdraws or entry.reset_at is not None or entry.fault.fault_class is FaultClass.APPLICATION:
        return False
    return sum(departure.identity == entry.fault.identity for departure in departed) >= FLAPS


def _seen_again(earlier: Fault, later: Fault, about: CheckAbout) -> Fault:
    """One fault over several runs: its first time and its strongest rung stay; the rest is as it is seen now."""
    first = later.first_seen if earlier.first_seen is None else earlier.first_seen
    update: dict[str, object] = {"first_seen": first, "count": max(earlier.count, later.count)}
    if later.rung.strength < earlier.rung.strength and not about.withdraws:
        update |= {"rung": earlier.rung, "severity": earlier.severity, "fault_class": earlier.fault_class}
    return later.model_copy(update=update)


def _told(entry: HeldFault) -> Fault:
    if not entry.flapping:
        return entry.fault
    hours = FLAP_WINDOW.total_seconds() / 3600
    words = f"came and went {FLAPS} times within {hours:g} hours: counts until a new boot or a proven reset"
    return entry.fault.model_copy(update={"evidence": (words, *entry.fault.evidence)})
