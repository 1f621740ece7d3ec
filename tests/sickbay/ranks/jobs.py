"""Made-up jobs of synchronous ranks, as their nodes' pages would tell of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sickbay.ranks.judgement import judge
from sickbay.ranks.model import NodeRanks, Pace, RankPlace, RanksLook, RankWindow
from sickbay.training.attempts import Placement

START = datetime(2026, 3, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
COMMUNICATION_MS = 50.0


@dataclass(frozen=True)
class Rank:
    """One rank's own time in a step."""

    compute_ms: float = 900.0
    data_ms: float = 20.0
    checkpoint_ms: float = 0.0
    other_ms: float = 0.0
    tokens: float = 0.0
    role: str = "worker"
    stage: int = 0

    @property
    def own_ms(self) -> float:
        return self.compute_ms + self.data_ms + self.checkpoint_ms + self.other_ms


@dataclass
class Job:
    """A job that makes one window a minute; `ranks_per_node` of its ranks share a node."""

    ranks: Sequence[Rank]
    ranks_per_node: int = 1
    leaves: dict[str, str] = field(default_factory=dict)
    clocks: dict[str, timedelta] = field(default_factory=dict)
    """How far ahead of ours a node's clock is."""
    pace: Pace = field(default_factory=Pace)
    minute: int = 10
    silent: frozenset[str] = frozenset()
    """Nodes whose page cannot be fetched."""

    def node(self, rank: int) -> str:
        return f"node-{rank // self.ranks_per_node:03d}"

    def now(self) -> datetime:
        return START + MINUTE * self.minute

    def placements(self) -> tuple[Placement, ...]:
        nodes = sorted({self.node(rank) for rank in range(len(self.ranks))})
        return tuple(
            Placement(rank=number, pod=f"pod-{number}", node=node, leaf=self.leaves.get(node, ""))
            for number, node in enumerate(nodes)
        )

    def pages(self, last_at: datetime | None = None, steps: Sequence[int] = ()) -> tuple[NodeRanks, ...]:
        """The pages of this minute. `last_at` is when the newest step ended, by our clock."""
        longest = max(rank.own_ms for rank in self.ranks) + COMMUNICATION_MS
        done = int(self.minute * 60_000 / longest)
        by_node: dict[str, list[RankWindow]] = {}
        for number, rank in enumerate(self.ranks):
            node = self.node(number)
            ahead = self.clocks.get(node, timedelta(0))
            at = (last_at or self.now()) + ahead
            window = RankWindow(
                job="ml/llama",
                attempt=1,
                place=RankPlace(rank=number, role=rank.role, pipeline_stage=rank.stage),
                node=node,
                number=int(at.timestamp() // 60),
                first_step=0,
                last_step=steps[number] if steps else done,
                first_at=START + ahead,
                last_at=at,
                steps=min(done, int(60_000 / longest)),
                step_ms=longest,
                compute_ms=rank.compute_ms,
                collective_ms=longest - rank.own_ms,
                data_ms=rank.data_ms,
                checkpoint_ms=rank.checkpoint_ms,
                checkpoint_ms_total=0,
                tokens=rank.tokens,
            )
            by_node.setdefault(node, []).append(window)
        return tuple(
            NodeRanks(
                node=node,
                boot_id="boot-1",
                at=self.now() + self.clocks.get(node, timedelta(0)),
                window=MINUTE,
                windows=tuple(windows),
            )
            for node, windows in by_node.items()
            if node not in self.silent
        )

    def look(self, pages: Iterable[NodeRanks] | None = None, floor: timedelta = timedelta(minutes=5)) -> RanksLook:
        """One look; what it must remember is kept."""
        told = self.pages() if pages is None else pages
        look = judge(told, self.placements(), self.pace, floor, len(self.ranks), self.now())
        self.pace = look.pace
        return look

    def run(self, minutes: int) -> RanksLook:
        """One look a minute; gives the last."""
        for _ in range(minutes):
            look = self.look()
            self.minute += 1
        return look
