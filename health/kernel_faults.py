"""What the kernel log showed since the last look, without telling anything twice over a restart of the agent.

Called by the agent with the records that `health.kernel_log` read. After a restart the log is read again from the start
of the boot, because a scanner must know what came before; but records up to the number that the agent's state
remembers only build up the scanner, and nothing in them happens again.
"""

from collections.abc import Iterable
from datetime import datetime

from health.kernel_log import KernelRecord
from sickbay.catalogue import fault_of
from sickbay.faults import Component, ComponentKind, Fault
from sickbay.kernel_log import KernelLogScanner
from sickbay.open_faults import Happening

_Identity = tuple[str, str, str, str]


class KernelFaults:
    """The kernel log of one boot as faults."""

    def __init__(self, boot_id: str, sequence: int, remembered: Iterable[Fault] = ()) -> None:
        """`sequence` is the last record that was read before, -1 for none; `remembered` are the faults open then."""
        self._scanner = KernelLogScanner(boot_id)
        self._sequence = sequence
        self._remembered = {fault.identity: fault.count for fault in remembered}
        self._shown: dict[_Identity, Fault] | None = None
        self._forgotten: dict[_Identity, int] = {}
        self._gap = fault_of("kernel-log-gap", Component(kind=ComponentKind.MONITOR, id="kernel-log"), boot_id=boot_id)
        self._lost = self._remembered.get(self._gap.identity, 0)
        self.began: KernelRecord | None = None
        """The first record of a log that nobody of ours has read before; None where there is a memory of it."""

    @property
    def sequence(self) -> int:
        """Number of the last record that was read."""
        return self._sequence

    def observe(self, records: Iterable[KernelRecord], now: datetime) -> Happening:
        """Read new records; what they show has happened now."""
        seen = False
        lost = self._lost
        for record in records:
            if self._shown is None:
                if record.sequence <= self._sequence:
                    self._scanner.feed(record.text)
                    continue
                self._end_history()
            if self._sequence < 0:
                self.began = self.began or record
            else:
                self._lost += max(0, record.sequence - self._sequence - 1)
            self._sequence = record.sequence
            seen = self._scanner.feed(record.text) or seen
        happening = self._compare(now) if seen else Happening(sequence=self._sequence, at=now)
        if self._lost == lost:
            return happening
        # Records that the ring overwrote before we read them; the numbers tell how many.
        gap = self._gap.model_copy(update={"count": self._lost, "first_seen": now, "last_seen": now})
        return happening.model_copy(update={"faults": (*happening.faults, gap)})

    def _end_history(self) -> None:
        """From here on everything is new. Counts go on where they stood, also if the ring lost their beginning."""
        self._shown = {fault.identity: fault for fault in self._scanner.faults()}
        for identity, count in self._remembered.items():
            counted = self._shown[identity].count if identity in self._shown else 0
            self._forgotten[identity] = max(0, count - counted)

    def _compare(self, now: datetime) -> Happening:
        shown = self._shown or {}
        current = {fault.identity: fault for fault in self._scanner.faults()}
        self._shown = current
        return Happening(
            sequence=self._sequence,
            at=now,
            faults=tuple(
                self._whole(fault) for fault in current.values() if _happened(fault, shown.get(fault.identity))
            ),
            withdrawn=tuple(fault for identity, fault in shown.items() if identity not in current),
        )

    def _whole(self, fault: Fault) -> Fault:
        forgotten = self._forgotten.get(fault.identity, 0)
        return fault.model_copy(update={"count": fault.count + forgotten}) if forgotten else fault


def _happened(fault: Fault, before: Fault | None) -> bool:
    return before is None or fault.count > before.count or fault.rung.strength > before.rung.strength
