"""Judges a recorded output of the fabric manager, of its unit, or of IMEX.

Called by `sickbay check --from fabric-manager=FILE`. A unit that runs or does not is the strongest word, since the
GPUs go on calling their fabric complete when it is gone (facts: detection, 8.15). That there is nothing to do for it
tells no more than that it sees no NVSwitch, which only the GPUs' product makes good or bad.
"""

import re
from typing import Final

from sickbay.catalogue import fault_of
from sickbay.checks import CheckOutcome, CheckResult, healthy, judged, not_applicable, unknown
from sickbay.fabric_manager.imex import judge_imex, looks_like_imex
from sickbay.fabric_manager.log import LogSays, read_log
from sickbay.fabric_manager.unit import judge_unit, read_units
from sickbay.faults import Component, ComponentKind, merge_faults
from sickbay.gpu_readings import Topology, product_of
from sickbay.host_layer.services import FABRIC_MANAGER
from sickbay.recorded.model import Recorded, RecordedContext

_CONSUMER: Final = re.compile(r"\b(?:GeForce|RTX|GTX|Quadro|TITAN)\b", re.IGNORECASE)
_SWITCH: Final = Component(kind=ComponentKind.NVSWITCH, id="unknown")
_LONGEST: Final = 2000
"""Characters of a line of a log; what is beyond them tells nothing that is looked for."""
_STARTED_COMMAND: Final = 3
"""Exit code of `systemctl status` for a unit that does not run, which the text tells better."""


def judge_fabric_manager(recorded: Recorded, context: RecordedContext) -> CheckOutcome:
    """What a recorded output says. Raises nothing."""
    if looks_like_imex(recorded.text):
        return _ended(judge_imex(recorded.text), recorded.exit_code)
    text = "\n".join(line.rstrip()[:_LONGEST] for line in recorded.text.splitlines())
    units = read_units(text)
    log = read_log(text)
    of_manager = bool(log.lines or log.starts or log.nothing_to_do or log.failed_start)
    if not units and not of_manager and not log.faults:
        return unknown("no output of the fabric manager, its unit or IMEX can be read in it")
    about_manager = all(unit.name == FABRIC_MANAGER for unit in units)
    outcome = _of_units([judge_unit(unit) for unit in units], log, context) if units else _of_log(log, context)
    if outcome.result is not CheckResult.HEALTHY and about_manager and not log.faults and _never_needed(context):
        return not_applicable(f"no NVSwitches join GPUs of the kind {context.products[0]}")
    return _ended(outcome, recorded.exit_code)


def _of_units(outcomes: list[CheckOutcome], log: LogSays, context: RecordedContext) -> CheckOutcome:
    """The units' own states; what their last log lines tell of a unit that runs is over."""
    faults = [fault for outcome in outcomes for fault in outcome.faults]
    if faults and log.nothing_to_do and not log.faults and len(outcomes) == 1:
        return _nothing_to_do(context)
    if faults:
        return judged(merge_faults(faults, log.faults))
    switches = [fault for fault in log.faults if fault.component.kind is ComponentKind.NVSWITCH]
    order = (CheckResult.UNKNOWN, CheckResult.STARTING, CheckResult.HEALTHY)
    worst = min(outcomes, key=lambda outcome: order.index(outcome.result))
    return judged(switches) if switches else worst


def _of_log(log: LogSays, context: RecordedContext) -> CheckOutcome:
    """What a log says."""
    open_questions = [f"an error that is not known here: {log.errors[0]}"] if log.errors else []
    if log.nothing_to_do and not log.faults:
        return _nothing_to_do(context)
    if log.failed_start and not log.faults:
        return judged((fault_of("fabric-manager-down", _SWITCH, evidence=(log.failed_start,)),))
    if log.starts and not log.ready:
        open_questions.append("the log ends before the fabric is set up")
    elif log.lines and not log.ready:
        open_questions.append("the log shows no start, so that whether the fabric is set up is not known")
    if log.faults:
        return judged(log.faults, "; ".join((*_restarts(log), *open_questions)))
    return judged((), "; ".join(open_questions)) if open_questions else healthy("it has set up the fabric")


def _restarts(log: LogSays) -> tuple[str, ...]:
    return (f"the fabric manager started {log.starts} times",) if log.starts > 1 else ()


def _nothing_to_do(context: RecordedContext) -> CheckOutcome:
    words = "the fabric manager found no NVSwitch and ended"
    joined = any(product_of(name).joined for name in context.products)
    if joined and context.fabric_in_progress:
        evidence = (f"{words}, while GPUs wait for it to register",)
        return judged((fault_of("fabric-manager-down", _SWITCH, evidence=evidence),))
    return unknown(f"{words}: right for cards without NVSwitches, wrong where GPUs wait for it to register")


def _never_needed(context: RecordedContext) -> bool:
    """Whether the other recordings prove that no NVSwitch joins the GPUs."""
    return bool(context.products) and all(
        _CONSUMER.search(name) or (product_of(name).topology is not Topology.UNKNOWN and not product_of(name).joined)
        for name in context.products
    )


def _ended(outcome: CheckOutcome, exit_code: int | None) -> CheckOutcome:
    if exit_code in (None, 0, _STARTED_COMMAND) or outcome.result is not CheckResult.HEALTHY:
        return outcome
    return unknown(f"{outcome.why}; but the command ended with exit code {exit_code}")
