"""What a failed attempt means: class, action, the rule that decided, its evidence, and whose budget pays.

Made by `sickbay.training.failures`, obeyed by `sickbay.training.decisions`, printed by `sickbay train explain` and
`classify`. The words are those of facts: training, 2.7.
"""

from enum import StrEnum

from pydantic import Field

from sickbay.model import Frozen

RULES_VERSION = "2026.1"
"""Version of patterns and rules; part of every verdict, so that an old one is explained by what held then."""


class FailureClass(StrEnum):
    """Whose trouble ended the attempt."""

    PLATFORM = "platform"
    DISRUPTION = "disruption"
    APPLICATION = "application"
    CONFIG = "config"
    POLICY = "policy"
    CASCADE = "cascade"
    """Only consequences are seen; the cause is elsewhere."""
    AMBIGUOUS = "ambiguous"
    HANG = "hang"


class FailureAction(StrEnum):
    """What is to be done."""

    RESTART = "restart"
    RESTART_EXCLUDING_NODE = "restart_excluding_node"
    STOP = "stop"
    FIND_ROOT = "find_root"
    """Look for the cause; restart without exclusion meanwhile."""
    WAIT = "wait"
    """Nothing failed, or what is awaited comes by itself."""
    CONFIRM_ONCE = "confirm_once"
    """Try again once, elsewhere; the same again stops the job."""


class BudgetKind(StrEnum):
    """Whose budget a restart spends (facts: training, 2.7)."""

    NONE = "none"
    DISRUPTION = "disruption"
    PLATFORM = "platform"
    CONFIRMATION = "confirmation"
    UNEXPLAINED = "unexplained"


class NodeBlame(Frozen):
    """A node that the next attempt should keep off."""

    node: str
    reason: str
    soft: bool = False
    """Prefer others; its own trouble (disk pressure) may have passed."""
    hardware: bool = False
    """There is evidence for a node incident, not only for keeping off."""
    code: str = ""
    """Fault code for the incident, where `hardware`."""
    known: bool = False
    """Detectors have told it: the job's word adds nothing to it, and is no second evidence."""
    corrupts: bool = False
    """It computed something wrong: nothing that it has contributed to is to be trusted (facts: training, 6)."""


class FailureVerdict(Frozen):
    """What the evidence of one attempt means."""

    failure_class: FailureClass = Field(alias="class")
    action: FailureAction
    rule: str
    """Name of the rule that decided, e.g. `row-03-hardware-on-node`."""
    reason: str
    """One sentence for a person."""
    culprits: tuple[str, ...] = ()
    """`rank 3`, `nodeA`, `rank 3 (nodeA)`; empty where nobody can be named."""
    evidence: tuple[str, ...] = ()
    """The lines and records that decided, each short."""
    budget: BudgetKind = BudgetKind.UNEXPLAINED
    blamed: tuple[NodeBlame, ...] = ()
    fingerprint: str = ""
    """The failure without its times, pids, ranks, nodes and steps: two of one fingerprint are the same failure."""
    step: int | None = None
    """The step it happened at, where known."""
    invalid_checkpoint: str = ""
    """Path of a checkpoint that this failure shows to be unreadable."""
    missing: tuple[str, ...] = ()
    """Sources of evidence that did not answer: what they might have said is unknown, not absent."""
    version: str = RULES_VERSION
