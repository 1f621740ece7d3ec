"""A training job's file: what can be used, and what a person is told of what cannot."""

from datetime import timedelta
from pathlib import Path

import pytest

from sickbay.training.spec_file import SpecError, read_spec

EXAMPLE = Path(__file__).parents[3] / "deploy" / "training" / "example.yaml"
WHOLE = """
name: run
manifest: {apiVersion: batch/v1, kind: Job}
checkpoints: {url: s3://bucket/run}
target: {step: 100}
"""


def no_file(name: str) -> str:
    raise AssertionError(f"{name} is not to be read")


def problems(text: str) -> list[str]:
    with pytest.raises(SpecError) as raised:
        read_spec(text, "job.yaml", no_file)
    return str(raised.value).splitlines()


def test_the_example_that_we_ship_can_be_used() -> None:
    spec = read_spec(EXAMPLE.read_text(encoding="utf-8"), str(EXAMPLE), no_file)
    assert spec.deadlines.start == timedelta(minutes=20)
    assert spec.elasticity is not None
    assert spec.elasticity.grow_after == timedelta(minutes=30)


def test_a_manifest_may_stand_in_a_file_of_its_own() -> None:
    text = WHOLE.replace("{apiVersion: batch/v1, kind: Job}", "{file: pods.yaml}")
    read = {"pods.yaml": "apiVersion: batch/v1\nkind: Job\n"}
    assert read_spec(text, "job.yaml", read.__getitem__).manifest == {"apiVersion": "batch/v1", "kind": "Job"}


@pytest.mark.parametrize(
    ("added", "told"),
    [
        ("targets: {step: 1}", "job.yaml:6: targets: is not a key here; did you mean 'target'?"),
        ("budgets: {perhour: 2}", "job.yaml:6: budgets.perhour: is not a key here; did you mean 'per_hour'?"),
        ("deadlines: {start: 10}", "job.yaml:6: deadlines.start: '10' has no unit; write 10s, 10m, 10h or 10d"),
        ("budgets: {per_hour: 0}", "job.yaml:6: budgets.per_hour: input should be greater than or equal to 1"),
        ("elasticity: {min_nodes: 4, max_nodes: 2}", "job.yaml:6: elasticity: min_nodes 4 is above max_nodes 2"),
    ],
)
def test_a_slip_is_told_with_its_line_its_path_and_the_cure(added: str, told: str) -> None:
    assert problems(WHOLE + added) == [told]


def test_every_slip_is_told_at_once() -> None:
    assert len(problems(WHOLE + "deadlines: {start: 10, stert: 1m, hang_floor: x}")) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: run\n", "manifest: is missing"),
        ("name: [1\n", "not valid YAML"),
        ("- a\n", "a job is one mapping"),
        ("", "a job is one mapping"),
        (WHOLE.replace("run\n", "Run_1\n", 1), "name: string should match pattern"),
        (WHOLE.replace("{step: 100}", "{}"), "say when the job is done"),
        ("x" * 1_000_001, "is it another file?"),
    ],
)
def test_what_is_no_job_is_told_so(text: str, words: str) -> None:
    assert any(words in line for line in problems(text))
