"""The beginning of this boot's kernel log, from the journal, where the kernel's own ring has overwritten it.

Asked once by the agent, when the first record that `/dev/kmsg` still holds is not the boot's first: an agent that was
installed late, or a flood before it came (NVSentinel issue 1532). The journal may be rotated or absent; what it does
not give stays a gap, which is told.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from health.children import run_child

DEADLINE: Final = timedelta(seconds=30)
"""For journalctl to print a boot; a journal of gigabytes on a slow disk needs ten."""
ARGUMENTS: Final = ("--dmesg", "--boot", "--output=short-monotonic", "--no-pager", "--quiet", "--no-hostname")
_LINE: Final = re.compile(r"\[\s*(\d{1,9}\.\d{1,9})\] kernel: (.*)")


def earlier_lines(command: Sequence[str], until: float) -> tuple[str, ...] | None:
    """The journal's kernel messages of this boot before `until`, in seconds since the boot; None if it gave none.

    Blocking, for the deadline and a second at most. The first MiB is read, which is the part that the ring lost.
    """
    if not command:
        return None
    result = run_child((*command, *ARGUMENTS), DEADLINE)
    if result.exit_code != 0:
        return None
    return tuple(_before(result.stdout, until)) or None


def _before(text: str, until: float) -> Iterator[str]:
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is not None and float(found[1]) < until:
            yield f"[{float(found[1]):12.6f}] {found[2]}"
