"""One attempt's evidence as the rules look at it: every sign with the rank that shows it, and how a verdict is made.

Used by the rules beside this module. It adds what end states and error records say in the words of the patterns, and
decides nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from sickbay.training.evidence import Evidence, RankEvidence, Sign, Source
from sickbay.training.failures.fingerprints import fingerprint
from sickbay.training.failures.patterns import Kind, found_in, kind_of
from sickbay.training.failures.pod_states import state_signs
from sickbay.training.verdicts import BudgetKind, FailureAction, FailureClass, FailureVerdict, NodeBlame

EVIDENCE_KEPT: Final = 5
CULPRITS_KEPT: Final = 32
CARRIERS: Final = (
    "RuntimeError", "DistBackendError", "DistNetworkError", "DistStoreError", "ChildFailedError", "SignalException",
    "RayTaskError", "RaySystemError", "CalledProcessError", "SystemExit", "AcceleratorError", "ConnectionResetError",
    "BrokenPipeError", "ConnectionError", "ActorDiedError", "RayActorError", "KeyboardInterrupt", "StopIteration",
)  # fmt: skip
"""Exceptions that carry any failure's words: their type alone proves nothing."""

_BUDGETS: Final = {
    FailureClass.PLATFORM: BudgetKind.PLATFORM,
    FailureClass.DISRUPTION: BudgetKind.DISRUPTION,
    FailureClass.APPLICATION: BudgetKind.CONFIRMATION,
    FailureClass.CONFIG: BudgetKind.CONFIRMATION,
    FailureClass.POLICY: BudgetKind.NONE,
    FailureClass.CASCADE: BudgetKind.UNEXPLAINED,
    FailureClass.AMBIGUOUS: BudgetKind.UNEXPLAINED,
    FailureClass.HANG: BudgetKind.UNEXPLAINED,
}


@dataclass(frozen=True)
class Seen:
    """One sign, and who shows it."""

    sign: Sign
    rank: RankEvidence | None

    @property
    def code(self) -> str:
        """Its row in the table of patterns."""
        return self.sign.code

    @property
    def node(self) -> str:
        """The node that it is about: the one its words name, else that of its rank."""
        details = self.sign.details
        return details.get("node") or details.get("to") or details.get("named") or (self.rank.node if self.rank else "")

    @property
    def who(self) -> str:
        """The rank as a verdict names it; empty where nobody can be named."""
        number = self.sign.details.get("rank", "")
        rank = int(number) if number.isdecimal() else self.rank.rank if self.rank else None
        if rank is None:
            return self.node
        return f"rank {rank} ({self.node})" if self.node else f"rank {rank}"


@dataclass
class Case:
    """The evidence of one attempt."""

    evidence: Evidence
    seen: list[Seen] = field(init=False)

    def __post_init__(self) -> None:
        self.seen = [
            *(Seen(sign, rank) for rank in self.evidence.ranks for sign in _all_signs(rank)),
            *(Seen(sign, None) for sign in self.evidence.cluster_signs),
        ]

    def all(self, *codes: str) -> list[Seen]:
        """Every sign of these codes, in order."""
        return [each for each in self.seen if each.code in codes]

    def first(self, *codes: str) -> Seen | None:
        """The first sign of these codes, the earlier code winning."""
        return next((each for code in codes for each in self.seen if each.code == code), None)

    def has(self, *codes: str) -> bool:
        """Whether any of these was seen."""
        return any(each.code in codes for each in self.seen)

    def kinds(self) -> set[Kind]:
        """Kinds of all signs but context."""
        return {kind_of(each.code) for each in self.seen} - {Kind.CONTEXT, Kind.NOISE}

    @property
    def began(self) -> bool:
        """Whether the attempt is known to have finished a step."""
        return bool(self.evidence.stepped)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Every node that is named."""
        named = [rank.node for rank in self.evidence.ranks] + [node.node for node in self.evidence.nodes]
        return tuple(dict.fromkeys(name for name in named if name))

    def everywhere(self, *codes: str) -> bool:
        """Whether ranks on several nodes, and most of those that told anything, show it."""
        telling = [rank for rank in self.evidence.ranks if rank.signs or rank.error]
        showing = [rank for rank in telling if any(sign.code in codes for sign in _all_signs(rank))]
        nodes = {rank.node for rank in showing if rank.node}
        return len(nodes) > 1 and len(showing) * 2 > len(telling)

    def own_exceptions(self) -> list[Seen]:
        """Exceptions whose type is the script's own, not one that carries any failure."""
        shown = self.all("python-exception")
        return [each for each in shown if each.sign.details.get("exception", "").rpartition(".")[2] not in CARRIERS]

    def own_exception(self) -> Seen | None:
        """The first of them."""
        return next(iter(self.own_exceptions()), None)


def verdict(
    failure_class: FailureClass,
    action: FailureAction,
    rule: str,
    reason: str,
    shown: Iterable[Seen] = (),
    *,
    case: Case | None = None,
    culprits: Iterable[str] | None = None,
    blamed: Iterable[NodeBlame] = (),
    budget: BudgetKind | None = None,
    lines: Iterable[str] = (),
    invalid_checkpoint: str = "",
) -> FailureVerdict:
    """A verdict with its lines, and with whoever shows them as culprits unless others are named."""
    shown = list(shown)
    named = [each.who for each in shown] if culprits is None else list(culprits)
    words = [each.sign.line for each in shown if each.sign.line] + list(lines)
    evidence = case.evidence if case else None
    return FailureVerdict(
        failure_class=failure_class,
        action=action,
        rule=rule,
        reason=reason,
        culprits=tuple(dict.fromkeys(name for name in named if name))[:CULPRITS_KEPT],
        evidence=tuple(dict.fromkeys(words))[:EVIDENCE_KEPT],
        budget=_BUDGETS[failure_class] if budget is None else budget,
        blamed=tuple(blamed),
        fingerprint=fingerprint(rule, words[0] if words else reason),
        step=evidence.last_step if evidence else None,
        invalid_checkpoint=invalid_checkpoint,
        missing=evidence.missing if evidence else (),
    )


def blames(
    shown: Iterable[Seen], reason: str, *, hardware: bool = False, soft: bool = False, corrupts: bool = False
) -> tuple[NodeBlame, ...]:
    """The nodes that signs are about, each blamed once."""
    nodes = dict.fromkeys(each.node for each in shown if each.node)
    codes = {each.node: each.code for each in shown}
    return tuple(
        NodeBlame(
            node=node,
            reason=reason,
            hardware=hardware,
            soft=soft,
            code=codes[node] if hardware else "",
            corrupts=corrupts,
        )
        for node in nodes
    )


def _all_signs(rank: RankEvidence) -> tuple[Sign, ...]:
    signs = list(rank.signs)
    if rank.end is not None:
        signs += state_signs(rank.end)
    if rank.error is not None:
        signs += [
            Sign(code=code, source=Source.ERROR_FILE, line=rank.error.message[:400], details=details)
            for code, details in found_in(rank.error.message.split("\n", 1)[0])
            if not any(sign.code == code for sign in signs)
        ]
    return tuple(signs)
