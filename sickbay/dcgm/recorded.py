"""Judges recorded outputs of DCGM: `dcgmi diag`, `dcgmi health` and `dcgmi nvlink`, and pages of dcgm-exporter.

Called by `sickbay check --from dcgmi-diag=FILE` and its siblings. A recording tells one moment: totals since a start
that nobody knows are told as such, and judge nothing that their growth would.
"""

from sickbay.checks import CheckOutcome, unknown
from sickbay.dcgm.diag import judge_diag_output
from sickbay.recorded.model import Recorded, RecordedContext


def judge_diag(recorded: Recorded, context: RecordedContext) -> CheckOutcome:
    """What a recorded `dcgmi diag` says, as JSON or as a table. Raises nothing."""
    return judge_diag_output(recorded.text, recorded.exit_code, context.expected_gpus)


def judge_health(recorded: Recorded, context: RecordedContext) -> CheckOutcome:  # noqa: ARG001 -- a reader's shape
    """What a recorded `dcgmi health -c` or `dcgmi nvlink -e` or `-s` says. Raises nothing."""
    return unknown("outputs of dcgmi health cannot be read by this version")


def judge_exporter(recorded: Recorded, context: RecordedContext) -> CheckOutcome:  # noqa: ARG001 -- a reader's shape
    """What a recorded page of dcgm-exporter says. Raises nothing."""
    return unknown("pages of dcgm-exporter cannot be read by this version")
