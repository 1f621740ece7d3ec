"""Jobs and attempts as tests of their rules want them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sickbay.checkpoints.model import CheckpointPlace
from sickbay.training.history import AttemptRecord, JobHistory
from sickbay.training.job import Target, TrainingSpec
from sickbay.training.verdicts import BudgetKind, FailureAction, FailureClass, FailureVerdict

BEGIN = datetime(2026, 11, 1, 12, tzinfo=UTC)


def spec(**values: Any) -> TrainingSpec:
    """A job that runs to step 1000."""
    needed: dict[str, Any] = {
        "name": "run",
        "manifest": {"apiVersion": "batch/v1", "kind": "Job"},
        "checkpoints": CheckpointPlace(url="s3://bucket/run"),
        "target": Target(step=1000),
    }
    return TrainingSpec(**{**needed, **values})


def verdict(budget: BudgetKind = BudgetKind.UNEXPLAINED, fingerprint: str = "x", **values: Any) -> FailureVerdict:
    """A verdict whose class and action go with its budget."""
    classes = {
        BudgetKind.NONE: (FailureClass.POLICY, FailureAction.RESTART),
        BudgetKind.DISRUPTION: (FailureClass.DISRUPTION, FailureAction.RESTART),
        BudgetKind.PLATFORM: (FailureClass.PLATFORM, FailureAction.RESTART_EXCLUDING_NODE),
        BudgetKind.CONFIRMATION: (FailureClass.APPLICATION, FailureAction.CONFIRM_ONCE),
        BudgetKind.UNEXPLAINED: (FailureClass.AMBIGUOUS, FailureAction.RESTART),
    }
    failure_class, action = classes[budget]
    fixed: dict[str, Any] = {"failure_class": failure_class, "action": action, "rule": "row", "reason": "it failed"}
    return FailureVerdict(**{**fixed, "budget": budget, "fingerprint": fingerprint, **values})


def failed(number: int, found: FailureVerdict, **values: Any) -> AttemptRecord:
    """An attempt that failed, one each two hours unless told otherwise."""
    at = values.pop("at", BEGIN + timedelta(hours=2 * number))
    fixed: dict[str, Any] = {"nodes": 4, "gpus": 32, "planned_at": at, "first_step_at": at, "gone_at": at}
    return AttemptRecord(attempt=number, verdict=found, **{**fixed, **values})


def history(*records: AttemptRecord, **values: Any) -> JobHistory:
    """What a job with these attempts remembers."""
    return JobHistory(attempts=records, **values)
