"""Judges recorded outputs of DCGM: `dcgmi diag`, `dcgmi health` and `dcgmi nvlink`, and pages of dcgm-exporter.

Called by `sickbay check --from dcgmi-diag=FILE` and its siblings. A recording tells one moment: totals since a start
that nobody knows are told as such, and judge nothing that their growth would.
"""

from sickbay.checks import CheckOutcome, judged
from sickbay.dcgm.diag import judge_diag_output
from sickbay.dcgm.exit_codes import words_of_exit
from sickbay.dcgm.exporter import judge_page
from sickbay.dcgm.health import judge_health_output
from sickbay.dcgm.live import without_absent_links
from sickbay.dcgm.nvlinks import judge_nvlinks
from sickbay.dcgm.reported import fault_of_exit
from sickbay.recorded.model import Recorded, RecordedContext


def judge_diag(recorded: Recorded, context: RecordedContext) -> CheckOutcome:
    """What a recorded `dcgmi diag` says, as JSON or as a table. Raises nothing."""
    return judge_diag_output(recorded.text, recorded.exit_code, context.expected_gpus)


def judge_health(recorded: Recorded, context: RecordedContext) -> CheckOutcome:
    """What a recorded `dcgmi health -c` or `dcgmi nvlink -e` or `-s` says. Raises nothing."""
    report = judge_health_output(recorded.text, recorded.exit_code)
    if report is not None:
        return without_absent_links(report, context.products)
    ended = f"dcgmi: {words_of_exit(recorded.exit_code)}" if recorded.exit_code else ""
    sick = fault_of_exit(recorded.exit_code)
    links = judge_nvlinks(recorded.text, context)
    if links is None:
        nothing = (
            "it holds no report of dcgmi health or dcgmi nvlink" if recorded.text.strip() else "nothing was printed"
        )
        return judged(sick, "; ".join(filter(None, (ended, nothing))))
    if not ended:
        return links
    return judged((*sick, *links.faults), "; ".join(filter(None, (ended, links.why))))


def judge_exporter(recorded: Recorded, context: RecordedContext) -> CheckOutcome:
    """What a recorded page of dcgm-exporter says. Raises nothing."""
    return judge_page(recorded.text, context.expected_gpus).model_copy(update={"memory": ""})
