"""The scanner: lines in, open faults out, in memory that does not grow with the log.

The node agent feeds it record by record, `sickbay diagnose` the interesting lines of a whole file
(`sickbay.kernel_log.stream`). It knows no clock and no boot: whoever reads a live kernel gives the boot id.
"""

from collections.abc import Iterable

from sickbay.faults import Fault
from sickbay.kernel_log.families import recognise
from sickbay.kernel_log.hangs import recognise_frame
from sickbay.kernel_log.ledger import Ledger
from sickbay.kernel_log.lines import read_line
from sickbay.kernel_log.sighting import Memory


class KernelLogScanner:
    """Finds faults in kernel messages. Never raises, whatever it is fed."""

    def __init__(self, boot_id: str | None = None) -> None:
        self._boot_id = boot_id
        self._ledger = Ledger()
        self._memory = Memory()

    def feed(self, line: str | bytes) -> bool:
        """Reads one line, or several with newlines between; returns whether a fault was seen in them."""
        text = line.decode("utf-8", errors="replace") if isinstance(line, bytes) else line
        seen = [self._feed_one(part) for part in text.split("\n")]
        return any(seen)

    def faults(self) -> tuple[Fault, ...]:
        """All faults that are open after the lines so far, oldest first."""
        return self._ledger.faults(self._memory, self._boot_id)

    @property
    def reads_stack(self) -> bool:
        """Whether the next lines may be a hung task's stack, which holds none of the words by which lines are found."""
        return self._memory.stack_lines_left > 0

    @property
    def dropped(self) -> int:
        """Sightings that were not kept, since too many distinct faults were seen."""
        return self._ledger.dropped

    def _feed_one(self, raw: str) -> bool:
        if self._memory.stack_lines_left:
            self._memory.stack_lines_left -= 1
        if not raw or raw.startswith("#"):
            return False
        line = read_line(raw)
        sighting = recognise(line, self._memory) or recognise_frame(line, self._memory)
        if sighting is None:
            return False
        self._ledger.add(sighting)
        return True


def scan(lines: Iterable[str | bytes], boot_id: str | None = None) -> tuple[Fault, ...]:
    """The open faults after all these lines."""
    scanner = KernelLogScanner(boot_id)
    for line in lines:
        scanner.feed(line)
    return scanner.faults()
