"""What the pages of a job's nodes say at one moment: who is slow, whether the job stands still, how far it is.

Called by the watch of an attempt with the pages that `activities.job_ranks` fetched; what must be remembered goes
along in `Pace`. A slow rank is named only once it has been slow for long (`slow` says when it is in one window), and
nobody is named for what has a cause in common. A rank without a page is unknown, neither healthy nor slow.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from sickbay.ranks.hangs import hang
from sickbay.ranks.model import NodeRanks, Pace, RanksLook, RankWindow, SlowRank, Suspicion
from sickbay.ranks.pace import all_slow, learned
from sickbay.ranks.slow import Excess, excesses, settled
from sickbay.training.attempts import Placement

WINDOWS: Final = 6
SLOW_WINDOWS: Final = 5
"""Of the last `WINDOWS` that a rank must have been slow in (facts: training, 5)."""
AT_LEAST: Final = timedelta(minutes=4)
"""How long a rank must have been slow (facts: training, 5: Minder)."""
COMMON_SHARE: Final = 0.25
"""Of the nodes: if more are slow, and more than two, the cause is not in them."""
CLOCKS_AGREE: Final = timedelta(seconds=10)
"""Difference between a page's time and ours that fetching it explains; a greater one is a clock's, and is taken out."""
SUSPICIONS_MOST: Final = 256
SILENT_MOST: Final = 4096
"""Silent ranks named."""


def judge(
    pages: Iterable[NodeRanks],
    placements: Sequence[Placement],
    pace: Pace,
    hang_floor: timedelta,
    ranks_expected: int,
    now: datetime,
    at_least: timedelta = AT_LEAST,
) -> RanksLook:
    """Judge the pages of one attempt. Windows of nodes where it has no pod do not count, unless no placement is known.

    `ranks_expected` is how many ranks take part, 0 if nobody knows; `at_least` is given by simulations, whose windows
    are short.
    """
    leaves = {place.node: place.leaf for place in placements if place.node}
    pages = _ours(pages, frozenset(leaves), now)
    windows = sorted((each for page in pages for each in page.windows), key=lambda each: each.place.rank)
    now_slow = {each.window.place.rank: each for each in excesses(windows)}
    suspicions = _suspicions(pace.suspicions, windows, frozenset(now_slow), frozenset(leaves), now)
    lasting = {each.rank: each.since for each in suspicions if _persistent(each, now, at_least)}
    common = _in_common(now_slow.values(), leaves, windows)
    slow = tuple(
        _named(now_slow[rank], since)
        for rank, since in sorted(lasting.items())
        if rank in now_slow and now_slow[rank].window.node not in common
    )
    words = next((common[node] for node in sorted(common)), "") if lasting else ""
    if not words and not now_slow:
        words = all_slow(pace, windows)
    now_pace = learned(pace, windows).model_copy(update={"suspicions": suspicions})
    reported = {window.place.rank for window in windows}
    return RanksLook(
        observed_at=now,
        reporting=len(reported),
        silent=tuple(rank for rank in range(min(ranks_expected, 10**6)) if rank not in reported)[:SILENT_MOST],
        slow=slow,
        all_slow=words,
        hang=hang(pages, now_pace, hang_floor, ranks_expected, now),
        pace=now_pace,
        **_progress(windows),
    )


def _progress(windows: Sequence[RankWindow]) -> dict[str, object]:
    if not windows:
        return {}
    step = min(window.last_step for window in windows)
    return {
        "step": step,
        "step_at": max(window.last_at for window in windows if window.last_step == step),
        "first_step_at": min(window.first_at for window in windows),
        "checkpoint_stall": timedelta(milliseconds=max(window.checkpoint_ms_total for window in windows)),
        "restore": timedelta(milliseconds=max(window.restore_ms_total for window in windows)),
    }


def _ours(pages: Iterable[NodeRanks], nodes: frozenset[str], now: datetime) -> tuple[NodeRanks, ...]:
    """The pages with each rank once, where it was heard last, and with times by our clock."""
    pages = [_by_our_clock(page, now) for page in sorted(pages, key=lambda page: page.node)]
    newest: dict[int, tuple[datetime, str]] = {}
    for page in pages:
        for window in page.windows:
            if window.node == page.node and (not nodes or page.node in nodes):
                heard = (window.last_at, page.node)
                newest[window.place.rank] = max(newest.get(window.place.rank, heard), heard)
    return tuple(
        page.model_copy(
            update={
                "windows": tuple(
                    each for each in page.windows if newest.get(each.place.rank) == (each.last_at, page.node)
                )
            }
        )
        for page in pages
    )


def _by_our_clock(page: NodeRanks, now: datetime) -> NodeRanks:
    ahead = page.at - now
    if abs(ahead) <= CLOCKS_AGREE:
        return page
    try:
        windows = tuple(
            each.model_copy(update={"first_at": each.first_at - ahead, "last_at": each.last_at - ahead})
            for each in page.windows
        )
    except OverflowError:  # a clock of the year 9999 says nothing
        windows = ()
    return page.model_copy(update={"at": now, "windows": windows})


def _suspicions(
    known: Iterable[Suspicion],
    windows: Iterable[RankWindow],
    slow: frozenset[int],
    nodes: frozenset[str],
    now: datetime,
) -> tuple[Suspicion, ...]:
    """What is suspected after these windows; each window counts once, however often it is looked at."""
    kept = {(each.rank, each.node): each for each in known if not nodes or each.node in nodes}
    for window in windows:
        rank, key = window.place.rank, (window.place.rank, window.node)
        before = kept.get(key)
        if not settled(window) or (before is not None and before.number == window.number):
            continue
        if before is not None:
            seen = (*before.windows, rank in slow)[-WINDOWS:]
            kept[key] = before.model_copy(update={"windows": seen, "number": window.number})
        elif rank in slow:
            kept[key] = Suspicion(rank=rank, node=window.node, windows=(True,), number=window.number, since=now)
    standing = [kept[key] for key in sorted(kept) if any(kept[key].windows)]
    return tuple(standing[:SUSPICIONS_MOST])


def _persistent(suspicion: Suspicion, now: datetime, at_least: timedelta) -> bool:
    return sum(suspicion.windows) >= SLOW_WINDOWS and now - suspicion.since >= at_least


def _in_common(slow: Iterable[Excess], leaves: Mapping[str, str], windows: Sequence[RankWindow]) -> dict[str, str]:
    """Slow nodes whose cause is not in them, each with the words for it."""
    nodes = sorted({each.window.node for each in slow})
    every = {window.node for window in windows}
    if len(nodes) > 2 and len(nodes) > COMMON_SHARE * len(every):
        return dict.fromkeys(nodes, f"{len(nodes)} of {len(every)} nodes are slow at once: the cause is not in them")
    behind = defaultdict[str, list[str]](list)
    for node in nodes:
        if leaves.get(node):
            behind[leaves[node]].append(node)
    return {
        node: f"nodes {', '.join(those)} behind switch {leaf} are slow alike: look at the switch, power or cooling"
        for leaf, those in behind.items()
        if len(those) > 1
        for node in those
    }


def _named(excess: Excess, since: datetime) -> SlowRank:
    window = excess.window
    return SlowRank(
        rank=window.place.rank,
        node=window.node,
        gpu_uuid=window.place.gpu_uuid,
        cause=excess.cause,
        slowdown=excess.slowdown,
        since=since,
        evidence=excess.words,
    )
