"""What a run of `dcgmi diag` says, in the same words for every version and shape of its output.

Made by `sickbay.dcgm.diag_json` and `sickbay.dcgm.diag_table`, judged by `sickbay.dcgm.diag`.
"""

from enum import StrEnum

from sickbay.faults import Component, ComponentKind
from sickbay.model import Frozen


class Status(StrEnum):
    """How a test ended. A word that is none of DCGM's is `unknown`, and is no pass."""

    PASS = "pass"
    FAIL = "fail"
    WARN = "warn"
    SKIP = "skip"
    UNKNOWN = "unknown"

    @classmethod
    def of(cls, word: str) -> "Status":
        """The status that a word stands for, in whatever case."""
        try:
            return cls(word.strip().lower())
        except ValueError:
            return cls.UNKNOWN


class Entity(Frozen):
    """One part by DCGM's own number; it is no PCI address, and may differ from NVML's index."""

    kind: ComponentKind
    number: int

    @property
    def component(self) -> Component:
        """The part in a fault."""
        return Component(kind=self.kind, id=f"index {self.number}")

    @property
    def words(self) -> str:
        """For people, e.g. `GPU 3`."""
        return f"{self.kind.upper()} {self.number}"


def gpu(number: int) -> Entity:
    """The GPU of this number."""
    return Entity(kind=ComponentKind.GPU, number=number)


class Finding(Frozen):
    """What DCGM says of a failure."""

    text: str = ""
    error_id: int | None = None
    """DCGM_FR_*; version 4 alone tells it for sure."""
    severity: int | None = None
    """DCGM_ERROR_*: 0 none, 1 monitor, 2 isolate, 3 unknown, 4 triage, 5 configuration, 6 reset."""
    entity: Entity | None = None
    """The part, where the output names it beside the text."""


class Row(Frozen):
    """One result within a test."""

    status: Status
    entities: tuple[Entity, ...] = ()
    """Nothing where the result is of the node, or of all GPUs without naming them."""
    findings: tuple[Finding, ...] = ()


class DiagTest(Frozen):
    """One test of a run."""

    name: str
    status: Status | None = None
    """Of the test as a whole, where the output tells it."""
    rows: tuple[Row, ...] = ()
    findings: tuple[Finding, ...] = ()
    """Those that stand beside no single result."""


class Diagnostic(Frozen):
    """One run, as far as it could be read."""

    tests: tuple[DiagTest, ...] = ()
    gpus: tuple[int, ...] = ()
    """Numbers of the GPUs that took part, where the output lists them."""
    gpu_count: int | None = None
    """How many took part, where the output tells that alone."""
    troubles: tuple[str, ...] = ()
    """Why this is not the whole of a run, in words."""
    told: tuple[str, ...] = ()
    """What a person should know, and what is no failure."""
