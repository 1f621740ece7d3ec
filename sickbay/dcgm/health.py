"""Judges `dcgmi health -c`.

Called by the live check and by `sickbay.dcgm.recorded`. DCGM remembers every Xid until its host engine starts anew,
also over a reset of the GPU: what is only remembered is for the live check to tell (`sickbay.dcgm.remembered`).
"""

import re
from collections.abc import Iterator
from typing import Final

from sickbay.checks import CheckOutcome, judged
from sickbay.dcgm.diagnostic import Finding, Status
from sickbay.dcgm.errors import NO_MEASUREMENT, error_number
from sickbay.dcgm.exit_codes import words_of_exit
from sickbay.dcgm.health_reading import Incident, read_health
from sickbay.dcgm.reported import code_of_finding, fault_of_exit, reported_fault, together, xid_code, xids_of
from sickbay.faults import Fault

NOT_WATCHED: Final = re.compile(r"watches not enabled", re.IGNORECASE)
"""What `dcgmi health -c` says until somebody has switched the watches on."""

_CODES_OF_FAILURE: Final = (
    ("nvlink", "dcgm-nvlink-errors"),
    ("nvswitch", "dcgm-fabric"),
    ("inforom", "inforom-corrupted"),
    ("pcie", "dcgm-pcie"),
    ("thermal", "dcgm-advice"),
    ("power", "dcgm-advice"),
)
"""By system, where the message tells no error that is known; all others need a person."""
_KEPT_IN_WARNINGS: Final = ("xid-", "row-remap-", "gpu-", "dcgm-xid", "dcgm-setting", "dcgm-software", "dcgm-imex")
"""Codes that a mere warning keeps: verdicts of the driver, and what disturbs nobody."""


def judge_health_output(text: str, exit_code: int | None) -> CheckOutcome | None:
    """What a health report says together with the exit code; None if the text holds none."""
    report = read_health(text)
    if report is None:
        return None
    ended = f"dcgmi: {words_of_exit(exit_code)}" if exit_code else ""
    found: list[Fault] = list(fault_of_exit(exit_code))
    unjudged = [*filter(None, (ended,)), *report.troubles]
    for incident in report.incidents:
        if incident.state not in ("healthy", "warning", "failure"):
            unjudged.append(f"{incident.system}: {incident.state or 'no state'}")
        elif incident.state != "healthy":
            found += _faults(incident, unjudged)
    if report.overall not in ("healthy", "warning", "failure"):
        unjudged.append(f"the overall health is {report.overall or 'missing'}")
    elif report.overall != "healthy" and not found and not unjudged:
        found += _faults(Incident(entity=None, system="overall", state=report.overall), unjudged)
    return judged(together(found), "; ".join(unjudged))


def _faults(incident: Incident, unjudged: list[str]) -> Iterator[Fault]:
    where = incident.entity.words if incident.entity else "an unnamed GPU"
    said = f": {incident.text}" if incident.text else ""
    evidence = f"dcgmi health: {incident.system} of {where} says {incident.state}{said}"
    finding = Finding(text=incident.text)
    codes = [xid_code(number) for number in xids_of(incident.text)] or [_code(incident, finding)]
    for code in codes:
        if code == NO_MEASUREMENT:
            unjudged.append(evidence)
        else:
            yield reported_fault(code, incident.entity, evidence, finding)


def _code(incident: Incident, finding: Finding) -> str:
    status = Status.WARN if incident.state == "warning" else Status.FAIL
    if error_number(finding) is not None:
        code = code_of_finding(finding, incident.system, status)
    else:
        system = incident.system.lower()
        code = next((code for name, code in _CODES_OF_FAILURE if name in system), "dcgm-triage")
    if status is Status.WARN and code != NO_MEASUREMENT and not code.startswith(_KEPT_IN_WARNINGS):
        return "dcgm-advice"
    return code
