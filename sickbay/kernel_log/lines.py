"""Takes a line of a log apart: when, from whom, and what the kernel said.

Every shape in which users keep kernel messages is read here (facts: detection, 1e and 7): raw /dev/kmsg records, dmesg
with and without stamps, with -T, -x and --time-format iso, journalctl -k, syslog of both kinds, Talos, and the log of
Fabric Manager. Prefixes are peeled off one after the other, since they are found in any order.

Not done here: a stamp without a year tells no moment, and `dmesg -T` prints local time of an unknown zone, which is
read as UTC.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sickbay.faults import Moment

LINE_LENGTH_KEPT: Final = 4096
"""Characters of a line that are read; the kernel's own records end at 1024."""

_KMSG = re.compile(r"\d{1,10},\d{1,20},(?P<usec>\d{1,18}),[^;\s]{1,64};")
_PRIORITY = re.compile(r"<\d{1,3}>(?:1 )?")
_FACILITY = re.compile(
    r"(?:[\w.:]+: )?(?:kern|user|daemon|syslog|local\d)\s*: ?\s*(?:emerg|alert|crit|err|warn|warning|notice|info|debug)"
    r"\s*:\s+"
)
_BOOT_SECONDS = re.compile(r"\[\s*(?P<seconds>\d{1,10}\.\d{1,9})\](?:\s?\[\s*[TC]\d+\])?\s?")
_CTIME = re.compile(r"\[(?P<ctime>[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\]\s")
_FABRIC_MANAGER = re.compile(
    r"\[(?P<fabric>[A-Z][a-z]{2} \d\d \d{4} \d\d:\d\d:\d\d)\]\s(?:\[\w+\]\s)?(?:\[tid \d+\]\s)?"
)
_ISO = re.compile(
    r"\[?(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:(?P<point>[.,])(?P<fraction>\d{1,9}))?"
    r"(?P<zone>Z|[+-]\d\d:?\d\d)?\]?:?\s"
)
_SYSLOG = re.compile(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?\s")
_PROGRAM = re.compile(r"[^\s:\[\]]+ (?P<program>[\w.@/-]+)(?:\[\d+\])?: ?")
_PROGRAM_5424 = re.compile(r"\S+ (?P<program>\S+) \S+ \S+ (?:-|\[[^\]]*\]) ?")
_KERNEL = re.compile(r"(?:[^\s:\[\]]+ )?kernel: ?")
_REPEATED = re.compile(r"message repeated (?P<times>\d{1,9}) times: \[ ?(?P<text>.*?)\]?$")

KERNEL: Final = "kernel"
FABRIC_MANAGER: Final = "nv-fabricmanager"
_PREFIXES_AT_MOST: Final = 6


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log."""

    text: str
    """The message, without prefixes."""
    raw: str
    """The line as it was found; what is kept as evidence."""
    moment: Moment | None = None
    program: str = KERNEL
    """Who said it. Only the kernel is believed on faults, but for a few named programs (`sickbay.kernel_log.families`):
    other programs quote the kernel, and a quote is no fault."""
    repeats: int = 1


def read_line(raw: str) -> Line:
    """Takes one line apart. Never raises; what has no known prefix is the kernel's word, at an unknown moment."""
    # A machine that dies leaves zeros in its last log, right before the first words of the next boot.
    raw = raw.strip("\0")[:LINE_LENGTH_KEPT].rstrip("\r\n")
    record = _KMSG.match(raw)
    if record:
        # The kernel escapes a newline inside a record, so that a record stays one line.
        text = raw[record.end() :].replace("\\x0a", "\n")
        return Line(text=text, raw=raw, moment=int(record["usec"]) / 1e6)
    peeled = _Peeler(raw)
    peeled.peel()
    repeated = _REPEATED.match(peeled.text)
    if repeated:
        return Line(repeated["text"], raw, peeled.moment, peeled.program, int(repeated["times"]))
    return Line(peeled.text, raw, peeled.moment, peeled.program)


class _Peeler:
    """Peels prefixes off one line, keeping the best moment and the program they tell."""

    def __init__(self, raw: str) -> None:
        self.text = raw.lstrip()
        self.moment: Moment | None = None
        self.program = KERNEL
        self._names_facility = False

    def peel(self) -> None:
        for _ in range(_PREFIXES_AT_MOST):
            if not self._peel_one():
                return

    def _peel_one(self) -> bool:
        return (
            self._stamp_boot()
            or self._stamp_ctime()
            or self._stamp_iso()
            or self._stamp_syslog()
            or self._stamp_fabric_manager()
            or self._facility()
            or self._take(_KERNEL) is not None
            or self._take(_PRIORITY) is not None
        )

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text)
        if found:
            self.text = self.text[found.end() :]
        return found

    def _at(self, moment: Moment | None) -> None:
        """Keeps the first wall-clock moment, else the first moment since boot."""
        if self.moment is None or (isinstance(self.moment, float) and isinstance(moment, datetime)):
            self.moment = moment

    def _facility(self) -> bool:
        found = self._take(_FACILITY)
        self._names_facility = self._names_facility or found is not None
        return found is not None

    def _stamp_boot(self) -> bool:
        found = self._take(_BOOT_SECONDS)
        if found:
            self._at(float(found["seconds"]))
        return found is not None

    def _stamp_ctime(self) -> bool:
        found = self._take(_CTIME)
        if found:
            self._at(_parse(found["ctime"], "%a %b %d %H:%M:%S %Y"))
        return found is not None

    def _stamp_fabric_manager(self) -> bool:
        found = self._take(_FABRIC_MANAGER)
        if found:
            self._at(_parse(found["fabric"], "%b %d %Y %H:%M:%S"))
            self.program = FABRIC_MANAGER
        return found is not None

    def _stamp_iso(self) -> bool:
        found = self._take(_ISO)
        if not found:
            return False
        self._at(_parse_iso(found))
        # dmesg writes a decimal comma and no host; syslog writes a point, the host and the program.
        if found["point"] != "," and not self._names_facility:
            self._take_program()
        return True

    def _stamp_syslog(self) -> bool:
        if not self._take(_SYSLOG):
            return False
        self._take_program()
        return True

    def _take_program(self) -> None:
        found = self._take(_PROGRAM) or self._take(_PROGRAM_5424)
        if found:
            self.program = found["program"].rsplit("/", 1)[-1]


def _parse(text: str, shape: str) -> datetime | None:
    try:
        return datetime.strptime(text, shape).replace(tzinfo=UTC)
    except ValueError:
        return None


def _parse_iso(found: re.Match[str]) -> datetime | None:
    zone = (found["zone"] or "+00:00").replace("Z", "+00:00")
    try:
        return datetime.fromisoformat(f"{found['iso']}.{(found['fraction'] or '0')[:6].ljust(6, '0')}{zone}")
    except ValueError:
        return None


def seconds_between(earlier: Moment | None, later: Moment | None) -> float | None:
    """Seconds from one moment to another; None where one is missing or they are of different clocks."""
    if isinstance(earlier, datetime) and isinstance(later, datetime):
        return (later - earlier).total_seconds()
    if isinstance(earlier, float) and isinstance(later, float):
        return later - earlier
    return None
