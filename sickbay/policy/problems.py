"""What is wrong with a policy file: each thing with its line, its path and its cure, all of them at once.

Made by every module of this package that reads a part of the file; shown by `sickbay policy check`.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from sickbay.model import Frozen


class Problem(Frozen):
    """One thing that is wrong."""

    line: int
    """From 1; 0 where the whole file is meant."""
    path: str
    """Where in the policy, e.g. `pools.p5.reboot.deadline`; empty for the whole file."""
    text: str
    """What is wrong and the cure, on one line."""

    def shown(self, file: str) -> str:
        """`file:line: path: text`, as editors and CI logs link it."""
        place = f"{file}:{self.line}" if self.line else file
        return ": ".join(part for part in (place, self.path, self.text) if part)


class PolicyError(Exception):
    """A policy file that cannot be used; holds every problem, in the order of the file."""

    def __init__(self, file: str, problems: Iterable[Problem]) -> None:
        self.file = file
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line))
        super().__init__("\n".join(problem.shown(file) for problem in self.problems))


def nearest(word: str, known: Sequence[str], *, otherwise: str = "") -> str:
    """The cure for a word that is not known: the nearest known one, else `otherwise`, else all that are known."""
    by_look = {_look(candidate): candidate for candidate in known}
    close = get_close_matches(_look(word), list(by_look), n=1, cutoff=0.6)
    if close:
        return f"did you mean '{by_look[close[0]]}'?"
    return otherwise or f"known here: {', '.join(known)}"


def _look(word: str) -> str:
    return word.lower().replace("-", "").replace("_", "")
