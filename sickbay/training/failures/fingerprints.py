"""The fingerprint of a failure: its words without what differs from one run to the next.

Used by `classify`. Two failures of one fingerprint are the same failure (facts: training, 2.6): times, pids, ranks,
nodes, addresses, steps and paths are taken out, the exception and its message stay.
"""

import re
from typing import Final

LENGTH: Final = 160

_STRIPPED: Final = (
    (re.compile(r"0x[0-9a-fA-F]+"), "#"),
    (re.compile(r"\b(GPU|MIG)-[0-9a-f-]{8,}\b"), "#"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b"), "#"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), "#"),
    (re.compile(r"\b(ip|node|worker|host|gpu|i)-?[A-Za-z0-9]*\d[\w.-]*", re.IGNORECASE), "#"),
    (re.compile(r"(?:/[\w.@+-]+)+/"), ""),
    (re.compile(r"\d+(?:\.\d+)?"), "#"),
    (re.compile(r"\[[^\]]*\]"), ""),
    (re.compile(r"\s+"), " "),
)


def fingerprint(rule: str, line: str) -> str:
    """The rule that decided, and the line that made it, without what differs between runs."""
    words = line
    for pattern, replacement in _STRIPPED:
        words = pattern.sub(replacement, words)
    return f"{rule}: {words.strip().lower()}"[:LENGTH]
