"""A scenario: the cluster that a simulation begins with, and what goes wrong in it, read from a YAML file.

Called by `simulator.process` and by the console, which offers the built-in ones by name. `simulator.host.faults` says
what a fault is; this adds when and where. All times are simulated seconds.
"""

from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, field_validator, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from simulator.host.faults import HostFault
from simulator.host.gpu import Described
from simulator.host.machine import RepairTimes
from simulator.instance_types import INSTANCE_TYPES, instance_type
from simulator.pool_kind import PoolKind


class ScenarioError(Exception):
    """The file cannot be used; the message names the file, the place, what is wrong and what would be right."""


class PoolPlan(Described):
    """Some nodes of one kind."""

    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    kind: PoolKind = PoolKind.KARPENTER
    nodes: int = Field(gt=0, le=100)
    instance_type: str = "p5.48xlarge"
    gpu_operator: bool = False
    """A device plugin and a DCGM exporter run on each node, as pods that follow the operator's node labels."""
    monitoring_agent: bool = False
    """Another agent publishes node conditions on each node, as EKS node-monitoring-agent does."""
    admission: bool = False
    """New nodes bear Sickbay's startup taint: by the NodePool, or by the kubelet's own registration elsewhere."""
    intolerant: bool = False
    """With `gpu_operator`: its pods do not tolerate that taint, as in a cluster that `sickbay doctor` finds ill."""

    @field_validator("instance_type")
    @classmethod
    def _known(cls, name: str) -> str:
        return instance_type(name).name


class JobPlan(Described):
    """A training job that runs through it all."""

    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    pool: str
    workers: int = Field(gt=0)
    gpus_per_worker: int = Field(default=8, gt=0)
    min_available: int | None = Field(default=None, ge=0)
    """With a number, a PodDisruptionBudget keeps that many workers."""
    stop_seconds: float | None = Field(default=None, ge=0)
    """How long a worker needs to end once asked, e.g. to write a checkpoint."""
    run_seconds: float | None = Field(default=None, gt=0)
    """After which a worker succeeds; a job without it runs on."""


class PlannedFault(HostFault):
    """One fault of one node of the beginning."""

    at: float = Field(default=0, ge=0)
    """Seconds after the first nodes are all Ready."""
    node: int = Field(ge=0)
    """Which machine, counted from 0 through the pools in order."""


class Scenario(Described):
    """The whole file."""

    description: str = ""
    speed: float = Field(default=20, gt=0, le=1000)
    """Simulated seconds per real second."""
    reuse_node_names: bool = False
    """A successor gets the name of the node it replaces, as with private DNS names that are given out again."""
    times: RepairTimes = RepairTimes()
    pools: tuple[PoolPlan, ...] = Field(min_length=1)
    jobs: tuple[JobPlan, ...] = ()
    faults: tuple[PlannedFault, ...] = ()

    @property
    def node_types(self) -> list[str]:
        """The instance type of each node of the beginning, by number."""
        return [pool.instance_type for pool in self.pools for _ in range(pool.nodes)]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        pools = [pool.name for pool in self.pools]
        if len(set(pools)) < len(pools):
            raise ValueError("two pools have one name: give each its own")
        for job in self.jobs:
            if job.pool not in pools:
                raise ValueError(f"job {job.name} runs on pool {job.pool!r}: use one of {', '.join(pools)}")
        nodes = self.node_types
        for fault in self.faults:
            if fault.node >= len(nodes):
                raise ValueError(f"fault {fault.name!r} is on node {fault.node}: there are nodes 0 to {len(nodes) - 1}")
            gpus = INSTANCE_TYPES[nodes[fault.node]].gpus
            if fault.gpu is not None and fault.gpu >= gpus:
                raise ValueError(
                    f"fault {fault.name!r} is on GPU {fault.gpu}: node {fault.node} has GPUs 0 to {gpus - 1}"
                )
        return self


def built_in() -> dict[str, Path]:
    """The scenarios that come with the package, by name."""
    folder = Path(str(resources.files("simulator") / "scenarios"))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def load(name: str) -> Scenario:
    """A built-in scenario by its name, or one of the user's by its path. Raises ScenarioError."""
    path = built_in().get(name) or Path(name)
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not UTF-8 text"
        names = ", ".join(built_in())
        raise ScenarioError(f"{path}: {reason}; give a scenario file, or one of {names}") from error


def parse(text: str, source: str) -> Scenario:
    """The scenario in some YAML text; `source` names it in errors. Raises ScenarioError with the first thing wrong."""
    try:
        content = YAML(typ="rt").load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ScenarioError(f"{source}:{line}: {error.problem or 'not YAML'}") from error
    except YAMLError as error:
        raise ScenarioError(f"{source}: not YAML: {error}") from error
    if not isinstance(content, dict):
        raise ScenarioError(f"{source}: a scenario is a mapping with at least `pools:`; see the built-in ones")
    try:
        return Scenario.model_validate(content)
    except ValidationError as error:
        raise ScenarioError(_first_problem(error, content, source)) from error


def _first_problem(error: ValidationError, content: Any, source: str) -> str:
    # A misspelt word makes a missing one as well: the misspelling is what the user wants to hear of.
    problem = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    place = problem["loc"]
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        message = "this word is not known here; simulator/scenarios/README.md lists those that are"
    path = "".join(f"{step}." for step in place).rstrip(".")
    return f"{source}:{_line(content, place)}: {path + ': ' if path else ''}{message}"


def _line(content: Any, place: Sequence[int | str]) -> int:
    """The line of the deepest part of a place that is in the file."""
    return max(_lines(content, place), default=0) + 1


def _lines(content: Any, place: Sequence[int | str]) -> Iterator[int]:
    for step in place:
        try:
            yield content.lc.key(step)[0] if isinstance(step, str) else content.lc.item(step)[0]
            content = content[step]
        except (AttributeError, KeyError, IndexError, TypeError):
            return
