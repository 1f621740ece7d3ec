"""Which ranks were slow in one window: each against its own kind alone, robustly, and with what explains it taken out.

Called by `judgement`, which waits for it to last. All ranks leave a collective together, so that a step takes all of
them equally long: what tells is the time *before* the collective, which the slow rank has most of, and the wait *in*
it, which it has least of (facts: training, 5). Where that does not fit together, or peers are too few, nobody is slow.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Final, NamedTuple

from sickbay.ranks.model import RankWindow, SlowCause

PEERS: Final = 3
"""Peers of one kind that a rank needs to be judged (facts: training, 5)."""
RELATIVE: Final = 0.10
"""Time over the peers' median below which nobody is slow (facts: training, 5: 10 to 15 %)."""
ROBUST_Z: Final = 3.5
"""Deviations over the median below which nobody is slow (the same)."""
_NORMAL: Final = 1.4826
"""Median absolute deviation times this estimates a standard deviation."""
_LEAST_SPREAD: Final = 0.01
"""Of the median: peers that agree to the microsecond must not make a fault of 1 %."""
EXPLAINS: Final = 0.8
"""Share of the excess that one part must explain to be named as the cause (facts: training, 5)."""
WARM_UP: Final = 5
"""First steps of an attempt that are not judged: compilation, caches, allocators."""


class Excess(NamedTuple):
    """How one rank held up its peers in one window."""

    window: RankWindow
    cause: SlowCause
    slowdown: float
    """The step's time over what it would be at the peers' pace."""
    words: tuple[str, ...]


class _Parts(NamedTuple):
    """Where a rank's own time of a step went, in milliseconds."""

    compute: float
    data: float
    checkpoint: float
    other: float

    @property
    def whole(self) -> float:
        return sum(self)


def settled(window: RankWindow) -> bool:
    """Whether a window holds none of the attempt's first steps."""
    return window.last_step - window.steps + 1 >= window.first_step + WARM_UP


def excesses(windows: Iterable[RankWindow]) -> tuple[Excess, ...]:
    """The ranks that held up their peers, by rank. Windows that are not `settled` are passed over."""
    kinds: dict[tuple[str, int, int], list[RankWindow]] = defaultdict(list)
    for window in windows:
        if settled(window):
            place = window.place
            kinds[(place.role, place.pipeline_stage, place.expert_group)].append(window)
    found = (each for kind in kinds.values() if len(kind) > PEERS for each in _of_kind(kind))
    return tuple(sorted(found, key=lambda each: each.window.place.rank))


def _of_kind(kind: Sequence[RankWindow]) -> Iterable[Excess]:
    waits_told = all(window.collective_ms > 0 for window in kind)
    parts = [_parts(window, waits_told=waits_told) for window in kind]
    owns = [part.whole for part in parts]
    work = _work(kind)
    by_time = _outliers(owns)
    by_work = _outliers([own / share for own, share in zip(owns, work, strict=True)])
    wait = median(window.collective_ms for window in kind)
    for index, window in enumerate(kind):
        # Uneven work explains the one, and a rank with little to do holds nobody up by the other.
        if not (by_time(owns[index]) and by_work(owns[index] / work[index])):
            continue
        if waits_told and window.collective_ms >= wait:
            continue
        usual = _Parts(*(median(column) for column in zip(*parts, strict=True)))
        excess = _excess(window, parts[index], usual, median(owns), wait)
        # Rank 0 logs, evaluates, saves and reads for others; it alone computes like them (facts: training, 5).
        if window.place.rank != 0 or excess.cause is SlowCause.COMPUTE:
            yield excess


def _parts(window: RankWindow, *, waits_told: bool) -> _Parts:
    told = window.compute_ms + window.data_ms + window.checkpoint_ms
    other = max(0.0, window.step_ms - window.collective_ms - told) if waits_told else 0.0
    return _Parts(window.compute_ms, window.data_ms, window.checkpoint_ms, other)


def _work(kind: Sequence[RankWindow]) -> list[float]:
    """Each rank's share of work in a usual one; 1 where not every rank tells its work."""
    if not all(window.tokens > 0 for window in kind):
        return [1.0] * len(kind)
    usual = median(window.tokens for window in kind)
    return [window.tokens / usual for window in kind]


def _outliers(values: Sequence[float]) -> Callable[[float], bool]:
    """A test for a value that stands out above these."""
    middle = median(values)
    spread = max(_NORMAL * median(abs(value - middle) for value in values), _LEAST_SPREAD * middle)
    limit = max(middle * (1 + RELATIVE), middle + ROBUST_Z * spread)
    return lambda value: value > limit


def _excess(window: RankWindow, parts: _Parts, usual: _Parts, usual_own: float, usual_wait: float) -> Excess:
    more = parts.whole - usual_own
    cause = _cause(parts, usual, more)
    step = max(window.step_ms, parts.whole)
    words = [f"{parts.whole:.1f} ms of its own in a step, its peers {usual_own:.1f} ms"]
    if window.collective_ms > 0:
        words.append(f"waits {window.collective_ms:.1f} ms for others, its peers {usual_wait:.1f} ms")
    words.append(f"steps {window.last_step - window.steps + 1} to {window.last_step}")
    return Excess(window, cause, round(step / (step - more), 3) if more < step else step, tuple(words))


def _cause(parts: _Parts, usual: _Parts, more: float) -> SlowCause:
    named = (
        (SlowCause.COMPUTE, parts.compute - usual.compute),
        (SlowCause.DATA, parts.data - usual.data),
        (SlowCause.CHECKPOINT, parts.checkpoint - usual.checkpoint),
    )
    return next((cause for cause, part in named if part >= EXPLAINS * more), SlowCause.UNKNOWN)
