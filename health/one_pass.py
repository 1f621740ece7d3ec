"""One pass of the health layers on any machine: what `sickbay check` prints.

Needs no Kubernetes, no state of an agent and no rights: what cannot be read is unknown. The agent's own passes, which
also remember what earlier ones saw, are in `health.agent`.
"""

import asyncio
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from health.check import Check
from health.check_run import CheckRunner
from health.host_facts import host_facts
from health.kernel_log_check import KernelLogCheck
from health.layers import checks
from health.settings import NodeSettings
from sickbay.check_record import CheckRun, bounded_start
from sickbay.checks import (
    ActiveDepth,
    CheckAbout,
    CheckCost,
    CheckLayer,
    CheckMoment,
    CheckReport,
    not_applicable,
)
from sickbay.open_faults import confirmed

NOT_ASKED_FOR: Final = "runs only when it is asked for, and on GPUs that nobody uses"


def all_checks(settings: NodeSettings) -> tuple[CheckAbout, ...]:
    """What every check is about, in the order of the printed table."""
    return tuple(check.about for check in _checks(settings))


def one_pass(settings: NodeSettings, layers: frozenset[CheckLayer], depth: ActiveDepth) -> tuple[CheckReport, ...]:
    """Run the checks of these layers once, all layers if none is named; one report a check, in the order of the table.

    Blocking, at most for the deadlines of the slowest check and of the exclusive ones; raises nothing.
    """
    chosen = tuple(check for check in _checks(settings) if not layers or check.about.layer in layers)
    return asyncio.run(_pass(settings, chosen, depth))


def _checks(settings: NodeSettings) -> tuple[Check, ...]:
    return (KernelLogCheck(settings), *checks(settings))


async def _pass(settings: NodeSettings, chosen: tuple[Check, ...], depth: ActiveDepth) -> tuple[CheckReport, ...]:
    host = await asyncio.to_thread(host_facts, settings)
    now = datetime.now(UTC)
    moment = CheckMoment(
        now=now,
        boot_id=_boot_id(settings),
        # Nobody has watched this boot: what has long been up is not starting any more.
        boot_seen_at=now - timedelta(seconds=time.clock_gettime(time.CLOCK_BOOTTIME)),
        host=host,
        expected_gpus=settings.expected_gpus,
        depth=depth,
    )
    beside = [check for check in chosen if check.about.cost is not CheckCost.EXCLUSIVE]
    alone = [check for check in chosen if check.about.cost is CheckCost.EXCLUSIVE]
    reports = dict(await asyncio.gather(*(_report(check, moment) for check in beside)))
    # One after the other, since each needs idle GPUs.
    for check in alone:
        name, report = await _report(check, moment)
        reports[name] = report
    return _without_lone_words(reports[check.about.name] for check in chosen)


async def _report(check: Check, moment: CheckMoment) -> tuple[str, CheckReport]:
    run = await _run(check, moment)
    about = check.about
    outcome = bounded_start(run, about, moment.boot_seen_at)
    report = CheckReport(
        name=about.name,
        layer=about.layer,
        result=outcome.result,
        why=outcome.why,
        seconds=run.seconds,
        at=run.at,
        faults=outcome.faults,
    )
    return about.name, report


async def _run(check: Check, moment: CheckMoment) -> CheckRun:
    if why := check.applies(moment.host):
        return CheckRun(at=moment.now, outcome=not_applicable(why))
    if check.about.cost is CheckCost.EXCLUSIVE and moment.depth is ActiveDepth.NONE:
        return CheckRun(at=moment.now, outcome=not_applicable(NOT_ASKED_FOR))
    return await CheckRunner(check).run(moment)


def _without_lone_words(reports: Iterable[CheckReport]) -> tuple[CheckReport, ...]:
    """The reports without what opens no incident alone (`sickbay.open_faults.confirmed`)."""
    reports = tuple(reports)
    everything = [fault for report in reports for fault in report.faults]
    counted = {fault.identity for fault in confirmed(everything, ())}
    return tuple(
        report.model_copy(update={"faults": tuple(fault for fault in report.faults if fault.identity in counted)})
        for report in reports
    )


def _boot_id(settings: NodeSettings) -> str:
    try:
        return settings.boot_id()
    except OSError:
        return ""
