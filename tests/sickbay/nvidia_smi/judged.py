"""What a recorded output of nvidia-smi comes to, in a few words."""

from sickbay.checks import CheckOutcome
from sickbay.nvidia_smi.recorded import judge_nvidia_smi
from sickbay.recorded.model import Recorded, RecordedContext, RecordedKind

ALONE = RecordedContext()


def judge(text: str, context: RecordedContext = ALONE, exit_code: int | None = None) -> CheckOutcome:
    """The judgement of one output."""
    recorded = Recorded(kind=RecordedKind.NVIDIA_SMI, text=text, exit_code=exit_code)
    return judge_nvidia_smi(recorded, context)


def found(outcome: CheckOutcome) -> list[tuple[str, str]]:
    """The code and the part of each fault."""
    return [(fault.code, fault.component.id) for fault in outcome.faults]
