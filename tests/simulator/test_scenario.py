"""Scenario files: the built-in ones, and what a user hears of a mistake in one."""

from pathlib import Path

import pytest

from simulator.host.faults import Cure
from simulator.scenario import ScenarioError, built_in, load, parse


def test_the_demo_has_six_nodes_a_job_and_a_fault_for_every_cure() -> None:
    demo = load("demo")
    assert len(demo.node_types) == 6
    assert len(demo.jobs) == 1
    assert [fault.cured_by for fault in demo.faults] == [Cure.ITSELF, Cure.RESET, Cure.REBOOT, Cure.REPLACE]
    assert len({fault.node for fault in demo.faults}) == 4


@pytest.mark.parametrize("name", built_in())
def test_every_built_in_scenario_is_valid(name: str) -> None:
    assert load(name).faults


def test_the_reference_of_all_words_is_itself_valid() -> None:
    reference = (built_in()["demo"].parent / "README.md").read_text()
    example = reference.split("```yaml\n")[1].split("```")[0]
    parse(example.replace("cured_by: reboot", "cured_by: itself"), "README.md")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pools:\n  - name: a\n    nodez: 1\n", "s.yaml:3: pools.0.nodez: this word is not known here"),
        ("pools:\n  - name: a\n    nodes: many\n", "s.yaml:3: pools.0.nodes: Input should be a valid integer"),
        ("speed: 1\npools: []\n", "s.yaml:2: pools: "),
        ("pools: [{name: a, nodes: 1}]\nfaults:\n  - node: 0\n    cured_by: luck\n", "s.yaml:4: faults.0.cured_by: "),
        ("pools: [{name: a, nodes: 1}]\nfaults:\n  - {node: 1, cured_by: reboot}\n", "there are nodes 0 to 0"),
        ("pools: [{name: a, nodes: 1}]\nfaults:\n  - {node: 0, gpu: 8, cured_by: reset}\n", "has GPUs 0 to 7"),
        (
            "pools: [{name: a, nodes: 1}]\njobs: [{name: j, pool: b, workers: 1}]\n",
            "job j runs on pool 'b': use one of a",
        ),
        ("pools: [{name: a, nodes: 1}, {name: a, nodes: 1}]\n", "two pools have one name"),
        ("pools: [{name: a, nodes: 1, instance_type: x1}]\n", "instance type 'x1' is not simulated: use one of p5"),
        ("pools: [", "s.yaml:1: "),
        ("a: 1\na: 2\n", "s.yaml:2: "),
        ("- a\n", "a scenario is a mapping"),
        ("", "a scenario is a mapping"),
    ],
)
def test_a_mistake_is_told_in_one_line_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse(text, "s.yaml")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_told_with_the_names_there_are(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="No such file or directory; give a scenario file, or one of demo"):
        load(str(tmp_path / "none.yaml"))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError, match="not UTF-8 text"):
        load(str(file))
