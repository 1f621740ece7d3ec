"""How a job's history changes: an attempt begins, is looked at, ends, proves what it resumed from.

Pure; called by the training workflow, whose only memory of its attempts this is. It stays small: samples of a running
attempt are thinned as they grow, and those of old attempts are few.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from sickbay.checkpoints.model import Checkpoint, Lineage
from sickbay.training import corruption
from sickbay.training.attempts import AttemptLook, AttemptPlan
from sickbay.training.evidence import PastFailure
from sickbay.training.history import AttemptEnd, AttemptRecord, JobHistory, Pause, PauseKind, StepSample
from sickbay.training.verdicts import FailureVerdict

SAMPLES: Final = 64
"""Of the newest attempts."""
OLD_SAMPLES: Final = 4
RECENT: Final = 20
"""Attempts that keep all their samples."""
NODES_KEPT: Final = 64
PATHS_KEPT: Final = 100
PAST_TOLD: Final = 12
"""Earlier failures that a classification is told of."""
PAUSES_KEPT: Final = 2_000


def begun(history: JobHistory, plan: AttemptPlan, gpus: int, planned_at: datetime, now: datetime) -> JobHistory:
    """An attempt was created."""
    record = AttemptRecord(
        attempt=plan.ref.attempt,
        nodes=plan.nodes,
        gpus=gpus,
        planned_at=planned_at,
        created_at=now,
        resume_step=plan.resume.step if plan.resume else None,
    )
    lineage = Lineage(
        attempt=plan.ref.attempt,
        resumed_step=plan.resume.step if plan.resume else None,
        resumed_path=plan.resume.path if plan.resume else "",
        began_at=now,
    )
    attempts = _thinned((*history.attempts, record))
    return history.model_copy(update={"attempts": attempts, "lineage": (*history.lineage, lineage)})


def looked(history: JobHistory, look: AttemptLook, now: datetime) -> JobHistory:
    """What one look adds to the newest attempt: when it ran, its first step, how far it is, what became durable."""
    record = history.attempts[-1]
    values: dict[str, object] = {}
    if record.placed_at is None and look.placed_since is not None:
        values["placed_at"] = max(look.placed_since, record.created_at or look.placed_since)
    if record.running_at is None and look.running_since is not None:
        values["running_at"] = max(look.running_since, record.created_at or look.running_since)
    if not record.node_names and look.placements and all(place.node for place in look.placements):
        values["node_names"] = tuple(dict.fromkeys(place.node for place in look.placements))[:NODES_KEPT]
    ranks = look.ranks
    if ranks is not None and ranks.first_step_at is not None and record.first_step_at is None:
        values["first_step_at"] = min(ranks.first_step_at, now)
        values["restore"] = ranks.restore
    if ranks is not None and ranks.step is not None and ranks.step_at is not None:
        sample = StepSample(at=min(ranks.step_at, now), step=ranks.step, checkpoint_stall=ranks.checkpoint_stall)
        values["samples"] = _with_sample(record.samples, sample)
    if look.newest is not None and look.newest.step > (history.durable_step or -1):
        values["progress_at"] = now
    if look.newest is not None:
        values["durable_step"] = max(look.newest.step, record.durable_step or 0)
    # Ranks that tell nothing still prove by a newer checkpoint that they stepped.
    if look.newest is not None and look.newest.step > (record.resume_step or 0) and record.first_step_at is None:
        values.setdefault("first_step_at", now)
    return _with_newest(durable(history, look.newest), values)


def durable(history: JobHistory, newest: Checkpoint | None) -> JobHistory:
    """The newest step that was ever seen durable."""
    if newest is None or (history.durable_step is not None and newest.step <= history.durable_step):
        return history
    return history.model_copy(update={"durable_step": newest.step})


def proven(history: JobHistory) -> JobHistory:
    """What the newest attempt resumed from is proven once it has made a newer checkpoint durable."""
    record, lineage = history.attempts[-1], history.lineage[-1]
    advanced = record.durable_step is not None and record.durable_step > (record.resume_step or 0)
    if not lineage.resumed_path or lineage.resumed_path in history.proven or not advanced:
        return history
    return history.model_copy(update={"proven": (*history.proven, lineage.resumed_path)[-PATHS_KEPT:]})


def stopped(history: JobHistory, end: AttemptEnd, why: str, now: datetime) -> JobHistory:
    """The newest attempt does not step any more, as the workflow has just noticed."""
    record = history.attempts[-1]
    last = record.samples[-1].at if record.samples else record.first_step_at or record.running_at
    planned = end in (AttemptEnd.STOPPED, AttemptEnd.REACHED_TARGET)
    return _with_newest(
        history,
        {"end": end, "why": why, "stopped_at": now if planned or last is None else min(last, now), "noticed_at": now},
    )


def judged(
    history: JobHistory, verdict: FailureVerdict, culprit_node: str, culprit_gpu: str, now: datetime
) -> JobHistory:
    """Why the newest attempt failed, and what of the job's work that spoils."""
    values: dict[str, object] = {"verdict": verdict, "culprit_node": culprit_node, "culprit_gpu": culprit_gpu}
    history = corruption.spoilt(_with_newest(history, values), verdict.blamed, now)
    if verdict.invalid_checkpoint and verdict.invalid_checkpoint not in history.invalid:
        history = history.model_copy(update={"invalid": (*history.invalid, verdict.invalid_checkpoint)[-PATHS_KEPT:]})
    return history


def gone(history: JobHistory, now: datetime) -> JobHistory:
    """The newest attempt can write no more."""
    history = _with_newest(history, {"gone_at": now})
    nodes = history.attempts[-1].node_names
    # Too many to keep: then anybody may have taken part.
    nodes = nodes if len(nodes) < NODES_KEPT else ()
    lineage = history.lineage[-1].model_copy(update={"ended_at": now, "nodes": nodes})
    return history.model_copy(update={"lineage": (*history.lineage[:-1], lineage)})


def paused(history: JobHistory, kind: PauseKind, why: str, now: datetime) -> JobHistory:
    """A time without an attempt begins; one of another kind ends, one of this kind goes on."""
    open_now = history.pauses[-1] if history.pauses and history.pauses[-1].ended_at is None else None
    if open_now is not None and open_now.kind is kind:
        return history
    ended = resumed(history, now)
    pause = Pause(kind=kind, began_at=now, why=why[:200])
    return ended.model_copy(update={"pauses": (*ended.pauses, pause)[-PAUSES_KEPT:]})


def resumed(history: JobHistory, now: datetime) -> JobHistory:
    """No pause is open any more."""
    if not history.pauses or history.pauses[-1].ended_at is not None:
        return history
    last = history.pauses[-1].model_copy(update={"ended_at": now})
    return history.model_copy(update={"pauses": (*history.pauses[:-1], last)})


def past_failures(history: JobHistory) -> tuple[PastFailure, ...]:
    """Earlier failures, as a classification of the newest attempt is told of them."""
    failures = []
    known = None
    for record in history.attempts[:-1]:
        progress = record.durable_step is not None and (known is None or record.durable_step > known)
        known = record.durable_step if progress else known
        if record.verdict is not None:
            failures.append(
                PastFailure(
                    attempt=record.attempt,
                    # Evidence and words of old failures decide nothing any more.
                    verdict=record.verdict.model_copy(update={"evidence": (), "missing": ()}),
                    nodes=record.node_names,
                    culprit_node=record.culprit_node,
                    culprit_gpu=record.culprit_gpu,
                    progress=progress,
                )
            )
    return tuple(failures[-PAST_TOLD:])


def stepped_before(history: JobHistory) -> bool:
    """Whether an attempt before the newest ever finished a step: the code and its configuration can work."""
    return any(record.first_step_at is not None for record in history.attempts[:-1])


def _with_newest(history: JobHistory, values: dict[str, object]) -> JobHistory:
    if not values:
        return history
    newest = history.attempts[-1].model_copy(update=values)
    return history.model_copy(update={"attempts": (*history.attempts[:-1], newest)})


def _with_sample(samples: tuple[StepSample, ...], sample: StepSample) -> tuple[StepSample, ...]:
    """In order of time and step; a repeat, or one that goes back, adds nothing."""
    if samples and (sample.step <= samples[-1].step or sample.at <= samples[-1].at):
        return samples
    samples = (*samples, sample)
    return _every_other(samples) if len(samples) > SAMPLES else samples


def _every_other(samples: tuple[StepSample, ...]) -> tuple[StepSample, ...]:
    """Half of them, with the first and the last."""
    return (*samples[:-1:2], samples[-1])


def _thinned(attempts: Iterable[AttemptRecord]) -> tuple[AttemptRecord, ...]:
    attempts = tuple(attempts)
    old, recent = attempts[:-RECENT], attempts[-RECENT:]
    return (*(_few(record) for record in old), *recent)


def _few(record: AttemptRecord) -> AttemptRecord:
    samples = record.samples
    while len(samples) > OLD_SAMPLES:
        samples = _every_other(samples)
    verdict = record.verdict and record.verdict.model_copy(update={"evidence": record.verdict.evidence[:2]})
    return record.model_copy(update={"samples": samples, "verdict": verdict, "node_names": record.node_names[:8]})
