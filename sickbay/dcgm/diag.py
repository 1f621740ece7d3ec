"""Judges one run of `dcgmi diag`: its failures are faults, and only a run that passed everywhere is well.

Called by the live check and by `sickbay.dcgm.recorded`. A test that was skipped, that DCGM itself broke, or that says
one thing in its sum and another in its parts has measured nothing, and leaves the run unknown. So does an exit code
that the body does not bear out.
"""

from collections.abc import Iterator
from typing import Final

from sickbay.checks import CheckOutcome, CheckResult, healthy, judged
from sickbay.dcgm.diag_json import read_diag_json
from sickbay.dcgm.diag_table import read_diag_table
from sickbay.dcgm.diagnostic import Diagnostic, DiagTest, Entity, Finding, Row, Status
from sickbay.dcgm.errors import NO_MEASUREMENT
from sickbay.dcgm.exit_codes import FAILED_TESTS, words_of_exit
from sickbay.dcgm.reported import code_of_finding, fault_of_exit, named_gpus, reported_fault, together
from sickbay.faults import ComponentKind, Fault
from sickbay.model import Frozen

_BAD: Final = (Status.FAIL, Status.WARN)
_OPTIONAL: Final = ("eud", "eud test", "cpu_eud", "cpueud")
"""NVIDIA's field diagnostic, which few hosts have: that it was skipped is told, and no more."""
_MERE_ADVICE: Final = ("dcgm-advice", "dcgm-setting", "dcgm-imex")
"""What a test may warn of and still have passed."""
_MAX_WORDS: Final = 400


class _Judgement(Frozen):
    """What a test, or a whole run, comes to."""

    faults: tuple[Fault, ...] = ()
    unjudged: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


def judge_diag_output(text: str, exit_code: int | None, expected_gpus: int | None = None) -> CheckOutcome:
    """What an output of `dcgmi diag`, JSON or table, says together with the exit code (None: not known)."""
    run = read_diag_json(text) or read_diag_table(text)
    ended = _end(exit_code)
    if run is None:
        nothing = "nothing was printed" if not text.strip() else "it holds no result of a diagnostic"
        return judged(ended.faults, "; ".join((*ended.unjudged, nothing)))
    body = _of_run(run, expected_gpus)
    contradiction = _contradiction(exit_code, body)
    unjudged = (*ended.unjudged, *contradiction, *run.troubles, *body.unjudged)
    outcome = judged(together((*ended.faults, *body.faults)), _shortened("; ".join(unjudged)))
    if outcome.result is not CheckResult.HEALTHY:
        return outcome
    return healthy(_shortened("; ".join((*run.told, *body.told))))


def _end(exit_code: int | None) -> _Judgement:
    """What the exit code says by itself."""
    if exit_code is None or exit_code == 0 or exit_code in FAILED_TESTS:
        return _Judgement()
    words = f"dcgmi: {words_of_exit(exit_code)}"
    return _Judgement(faults=fault_of_exit(exit_code), unjudged=(words,))


def _contradiction(exit_code: int | None, body: _Judgement) -> tuple[str, ...]:
    if exit_code not in FAILED_TESTS or exit_code is None or body.faults or body.unjudged:
        return ()
    return (f"dcgmi: {words_of_exit(exit_code)}; but no test in the body failed",)


def _of_run(run: Diagnostic, expected_gpus: int | None) -> _Judgement:
    wanted = _wanted_gpus(run)
    judgements = [_of_test(test, wanted) for test in run.tests]
    missing = _missing_gpus(run, wanted, expected_gpus)
    return _Judgement(
        faults=tuple(fault for judgement in judgements for fault in judgement.faults),
        unjudged=(*missing, *(words for judgement in judgements for words in judgement.unjudged)),
        told=tuple(words for judgement in judgements for words in judgement.told),
    )


def _wanted_gpus(run: Diagnostic) -> frozenset[int]:
    """Numbers of all GPUs that any test must have judged, as far as the run tells them."""
    return frozenset(run.gpus) | {number for test in run.tests for number in _numbers(test)}


def _missing_gpus(run: Diagnostic, wanted: frozenset[int], expected: int | None) -> tuple[str, ...]:
    told = run.gpu_count or len(wanted)
    least = max(expected or 0, run.gpu_count or 0)
    shown = len(wanted) or told
    return (f"it shows {shown} of {least} GPUs",) if shown and shown < least else ()


def _numbers(test: DiagTest) -> set[int]:
    return {entity.number for row in test.rows for entity in row.entities if entity.kind is ComponentKind.GPU}


def _of_test(test: DiagTest, wanted: frozenset[int]) -> _Judgement:
    faults: list[Fault] = []
    unjudged: list[str] = []
    for entity, finding, status in _failures(test):
        code = code_of_finding(finding, test.name, status)
        words = _words(test, entity, finding, status)
        if code == NO_MEASUREMENT:
            unjudged.append(words)
        else:
            faults.append(reported_fault(code, entity, words, finding))
    failed = test.status in _BAD or any(row.status in _BAD for row in test.rows)
    if failed and not faults and not unjudged:
        unjudged.append(f"{test.name}: the test says {test.status}, and each of its results says otherwise")
    skipped = _skipped(test)
    optional = test.name.lower() in _OPTIONAL
    return _Judgement(
        faults=tuple(faults),
        unjudged=(*unjudged, *_doubts(test), *(() if optional else skipped), *_unread(test, wanted)),
        told=skipped if optional else (),
    )


def _failures(test: DiagTest) -> Iterator[tuple[Entity | None, Finding, Status]]:
    """Each failure once: with its reason, and with the part that the reason, or else the result, names."""
    nameless = [finding for finding in test.findings if not _about(finding)]
    loose = [finding for finding in test.findings if _about(finding)]
    for row in test.rows:
        if row.status not in _BAD:
            continue
        own = [*row.findings, *(finding for finding in loose if _about(finding) & set(row.entities))]
        loose = [finding for finding in loose if finding not in own]
        for finding in own or nameless or [Finding()]:
            yield from ((part, finding, row.status) for part in _parts(finding, row))
    bad_rows = any(row.status in _BAD for row in test.rows)
    if test.status in _BAD and not bad_rows:
        loose += nameless or ([] if test.rows or loose else [Finding()])
    if test.status in _BAD or bad_rows:
        for finding in loose:
            named: tuple[Entity | None, ...] = tuple(_about(finding)) or (None,)
            yield from ((part, finding, test.status or Status.FAIL) for part in named)


def _doubts(test: DiagTest) -> Iterator[str]:
    """Passes with a warning that is more than advice: the test saw trouble and did not say so (DCGM#284)."""
    loose = test.findings if test.status is Status.PASS and all(row.status not in _BAD for row in test.rows) else ()
    passed = [finding for row in test.rows if row.status is Status.PASS for finding in row.findings]
    for finding in (*loose, *passed):
        if code_of_finding(finding, test.name) not in _MERE_ADVICE:
            yield f"{test.name} passed, and warns: {finding.text}"


def _about(finding: Finding) -> set[Entity]:
    return {finding.entity} if finding.entity else set(named_gpus(finding.text))


def _parts(finding: Finding, row: Row) -> tuple[Entity | None, ...]:
    """A result of several GPUs may have failed for one of them, which then only the text tells."""
    named = [entity for entity in row.entities if entity in _about(finding)]
    if named or row.entities:
        return tuple(named or row.entities)
    return tuple(sorted(_about(finding), key=lambda entity: entity.number)) or (None,)


def _words(test: DiagTest, entity: Entity | None, finding: Finding, status: Status) -> str:
    where = f" on {entity.words}" if entity else ""
    number = f" (DCGM error {finding.error_id})" if finding.error_id is not None else ""
    said = f": {finding.text}" if finding.text else ""
    return _shortened(f"dcgmi diag: {test.name} says {status}{where}{number}{said}")


def _skipped(test: DiagTest) -> tuple[str, ...]:
    rows = [row for row in test.rows if row.status is Status.SKIP]
    if not rows and test.status is not Status.SKIP:
        return ()
    parts = [entity.words for row in rows for entity in row.entities]
    whom = f" on {', '.join(parts)}" if parts and any(row.status is not Status.SKIP for row in test.rows) else ""
    return (f"{test.name} was skipped{whom}",)


def _unread(test: DiagTest, wanted: frozenset[int]) -> tuple[str, ...]:
    """What a test leaves open that neither failed nor was skipped."""
    found = []
    if Status.UNKNOWN in (test.status, *(row.status for row in test.rows)):
        found.append(f"{test.name} has a status that is none of DCGM's")
    if test.status is None and not test.rows:
        found.append(f"{test.name} has no result")
    judged_gpus = _numbers(test)
    if judged_gpus and wanted - judged_gpus:
        left = ", ".join(str(number) for number in sorted(wanted - judged_gpus))
        found.append(f"{test.name} has no result for GPU {left}")
    return tuple(found)


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_WORDS else f"{text[: _MAX_WORDS - 4]} ..."
