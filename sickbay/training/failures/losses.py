"""The losses that a log prints: a spike that recovers, a divergence that does not, a value that vanishes.

Used by `log_text`. A loss alone proves little (facts: training, 6): a spike that passed by itself asks for nothing, one
that lasted, or that ended in no number, is the job's own unless something else stands beside it.
"""

import re
from statistics import median_high
from typing import Final

from sickbay.training.evidence import Sign

_LOSS: Final = re.compile(
    r"\b(?:lm loss|train_loss|training loss|loss)['\"]?\s*(?:value)?\s*[:=|]?\s*"
    r"(?P<loss>nan|inf|-?\d+\.\d+(?:[eE][+-]?\d+)?)",
    re.IGNORECASE,
)
_ITERATION: Final = re.compile(r"\biter(?:ation)?\s+\d+|\bstep\b|'epoch'|\bloss scale\b")
_NORM: Final = re.compile(
    r"grad[_ ]norm['\"]?\s*[:=]\s*(?P<norm>nan|inf|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)", re.IGNORECASE
)
HIGH: Final = 1.5
"""Times the losses before: above it a loss is a spike."""
BACK: Final = 1.15
"""Times the losses before: below it the loss is back."""
HIGH_NORM: Final = 50.0
KEPT: Final = 4096
USUAL: Final = 8
"""How many losses before one make up the usual."""
LEAST: Final = 4


class LossSeries:
    """The losses of one log, in order."""

    def __init__(self) -> None:
        self._losses: list[float] = []
        self._norms: list[float] = []
        self._vanished = False
        self._not_numbers = 0
        self._line = ""

    def take(self, line: str) -> None:
        """One line."""
        norm = _NORM.search(line)
        match = _LOSS.search(line)
        if match is None:
            # Some trainers leave a loss out that is no number.
            if self._losses and norm is not None and _ITERATION.search(line):
                self._vanished = True
                self._line = line
            return
        if not (_ITERATION.search(line) or norm is not None):
            return
        value = match["loss"].lower()
        if value in ("nan", "inf"):
            self._not_numbers += 1
            self._line = line
            return
        self._vanished = False
        if len(self._losses) < KEPT:
            self._losses.append(float(value))
            if norm is not None and norm["norm"].lower() not in ("nan", "inf"):
                self._norms.append(float(norm["norm"]))

    def _rise(self) -> tuple[float, float]:
        """The usual loss before the first spike, and the highest since; without a spike both are the usual one. A loss
        that begins high and falls has none."""
        usual = self._losses[0]
        for place in range(1, len(self._losses)):
            usual = median_high(self._losses[max(0, place - USUAL) : place])
            if self._losses[place] > usual * HIGH > 0:
                return usual, max(self._losses[place:])
        return usual, usual

    def signs(self, number: int) -> tuple[Sign, ...]:
        """What the series shows; nothing for one that is ordinary, or too short to judge."""
        if self._not_numbers and len(self._losses) < LEAST:
            return (Sign(code="loss-not-a-number", line=self._line.strip()[:400], number=number),)
        if len(self._losses) < LEAST:
            return ()
        before, peak = self._rise()
        last = self._losses[-1]
        words = f"loss {before:.3g} before, {peak:.3g} at its highest, {last:.3g} at the end"
        if self._not_numbers or self._vanished:
            code = "loss-diverged" if peak > before * HIGH else "loss-not-a-number"
            return (Sign(code=code, line=f"{words}, and then no number", number=number),)
        norms = sorted(self._norms)
        wild = bool(norms) and norms[-1] > HIGH_NORM * max(norms[len(norms) // 4], 1e-9)
        if peak <= before * HIGH:
            return ()
        if last <= before * BACK:
            return (Sign(code="loss-spike-recovered", line=words, number=number),)
        return (Sign(code="loss-diverged" if wild or last > before * HIGH else "loss-high", line=words, number=number),)
