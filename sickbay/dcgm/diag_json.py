"""Reads the JSON of `dcgmi diag -j`, of DCGM 3 and 4.

The two differ in their root, in how they name a result's GPUs, and in that version 4 sums each test up. A document that
was cut still shows whole tests or results, which are read for the failures in them; it is never a whole run.
"""

import re
from collections.abc import Iterator
from typing import Final

from sickbay.dcgm.diagnostic import Diagnostic, DiagTest, Entity, Finding, Row, Status, gpu
from sickbay.dcgm.documents import Document, Json, documents, entries, items, member, whole_number, words
from sickbay.faults import ComponentKind

_ROOTS: Final = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
"""Of version 4, and of those before."""
_GPU_KEYS: Final = ("gpu_id", "gpu_ids")
_GROUPS: Final = {"gpu": ComponentKind.GPU, "nvswitch": ComponentKind.NVSWITCH, "switch": ComponentKind.NVSWITCH}
"""Entity groups that are parts by themselves; all others (CPU, core, adapter) count to the host."""
_NAME: Final = re.compile(r'"name"\s*:\s*"([^"]{1,80})"')
_NAME_NEAR: Final = 20_000
"""Characters before a result in which its test's name must stand."""
_MAX_GPUS: Final = 1024
"""A larger number of a GPU is a broken output."""


def read_diag_json(text: str) -> Diagnostic | None:
    """What the text says; None if nothing in it is of a diagnostic. Raises nothing, on any text."""
    found = documents(text)
    runs = [read for document in found for read in (_run(document.content),) if read is not None]
    if not runs:
        return _parts(text, found)
    cut = () if len(runs) == text.count('"test_categories"') else ("a part of the JSON cannot be read",)
    return Diagnostic(
        tests=tuple(test for run in runs for test in run.tests),
        gpus=tuple(sorted({number for run in runs for number in run.gpus})),
        troubles=(*(trouble for run in runs for trouble in run.troubles), *cut),
        told=tuple(line for run in runs for line in run.told),
    )


def _run(content: Json) -> Diagnostic | None:
    root = next((content[name] for name in _ROOTS if name in content), None)
    if root is None:
        return None
    troubles = [f"DCGM could not run it: {words(said)}" for said in _refusals(root, content)]
    told: list[str] = []
    tests = _tests_of_run(root, told)
    if not tests:
        troubles.append("it has no test")
    return Diagnostic(tests=tuple(tests), gpus=_listed_gpus(content), troubles=tuple(troubles), told=tuple(told))


def _tests_of_run(root: object, told: list[str]) -> list[DiagTest]:
    return [test for category in items(member(root, "test_categories")) for test in _tests_of_category(category, told)]


def _tests_of_category(category: object, told: list[str]) -> list[DiagTest]:
    """Tests of one category; version 3 may write nulls between them."""
    name = words(member(category, "category"))
    return [_test(test, name, told) for test in items(member(category, "tests")) if test is not None]


def _refusals(root: object, content: Json) -> Iterator[object]:
    for holder in (root, content):
        for key in ("runtime_error", "Runtime Error", "error"):
            if member(holder, key):
                yield member(holder, key)


def _parts(text: str, found: tuple[Document, ...]) -> Diagnostic | None:
    """Whole categories, tests and results in a document that was cut."""
    told: list[str] = []
    tests: list[DiagTest] = []
    for start, content in found:
        if "test_categories" in content:
            tests += _tests_of_run(content, told)
        elif "tests" in content:
            tests += _tests_of_category(content, told)
        elif isinstance(content.get("results"), list):
            tests.append(_test(content, "", told))
        elif "status" in content and (_numbered(content) or "warnings" in content):
            before = _NAME.findall(text, max(0, start - _NAME_NEAR), start)
            tests.append(DiagTest(name=before[-1] if before else "a test", rows=(_row(content),)))
    if not tests:
        return None
    return Diagnostic(tests=tuple(tests), troubles=("it is a part of a document that was cut",), told=tuple(told))


def _test(test: object, category: str, told: list[str]) -> DiagTest:
    name = words(member(test, "name")) or category or "a test"
    summary = member(test, "test_summary")
    status = member(summary, "status")
    told += [f"{name}: {line}" for line in _info(summary)]
    return DiagTest(
        name=name,
        status=Status.of(words(status)) if status is not None else None,
        rows=tuple(_row(result) for result in items(member(test, "results"))),
        findings=_findings(summary),
    )


def _info(holder: object) -> list[str]:
    """Words on what was not measured; other words of a test are measurements, and of no use here."""
    said = member(holder, "info")
    lines = items(said) or [said]
    return [words(line) for line in lines if "skipp" in words(line).lower()]


def _row(result: object) -> Row:
    return Row(
        status=Status.of(words(member(result, "status"))),
        entities=_entities(result),
        findings=_findings(result),
    )


def _findings(holder: object) -> tuple[Finding, ...]:
    """Warnings, which are strings or objects, one or a list."""
    said = member(holder, "warnings")
    return tuple(
        Finding(
            text=words(one) or words(member(one, "warning")),
            error_id=whole_number(member(one, "error_id")),
            severity=whole_number(member(one, "error_severity")),
        )
        for one in (items(said) or [said])
        if one
    )


def _numbered(result: object) -> bool:
    return any(member(result, key) is not None for key in (*_GPU_KEYS, "entity_id"))


def _entities(result: object) -> tuple[Entity, ...]:
    number = whole_number(member(result, "entity_id"))
    if number is not None:
        group = words(member(result, "entity_group")).lower()
        return (Entity(kind=_GROUPS.get(group, ComponentKind.HOST), number=number),)
    for key in _GPU_KEYS:
        said = member(result, key)
        parts = said.split(",") if isinstance(said, str) else items(said) or [said]
        numbers = [number for number in map(whole_number, parts) if number is not None and number < _MAX_GPUS]
        if numbers:
            return tuple(gpu(number) for number in numbers)
    return ()


def _listed_gpus(content: Json) -> tuple[int, ...]:
    """The GPUs that version 4 lists beside the tests."""
    return tuple(
        number
        for name, groups in entries(content)
        if name == "entity_groups"
        for group in items(groups)
        if words(member(group, "entity_group")).lower() == "gpu"
        for entity in items(member(group, "entities"))
        for number in (whole_number(member(entity, "entity_id")),)
        if number is not None
    )
