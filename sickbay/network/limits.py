"""How fast an adapter's error counters may grow before that is told, and before new work is blocked.

The defaults are those of NVSentinel's network monitor for InfiniBand and RoCE and of EKS' node monitoring agent for EFA
(facts: peer-nvsentinel 2c, detection 4). They are softened in one respect: a link that went down, or a peer that did
not answer, is told and blocks nothing, since a switch under maintenance does that to a whole fleet at once. A fleet
sets its own by `SICKBAY_NIC_LIMITS`.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from sickbay.model import Frozen

_PERIODS: Final = {
    "s": timedelta(seconds=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "day": timedelta(days=1),
}
_ENTRY: Final = re.compile(r"^(?P<name>\w+)>(?P<most>\d+(?:\.\d+)?)/(?P<period>s|min|h|day)(?P<hard>!?)$")
_OFF: Final = re.compile(r"^(?P<name>\w+)=off$")


class Limit(Frozen):
    """The most that a counter may grow in a period."""

    counter: str
    """Its file name in sysfs."""
    most: float
    period: timedelta
    hard: bool = False
    """Whether more than that blocks new work; else it is only told."""

    def exceeded(self, growth: int, elapsed: timedelta) -> bool:
        """Whether it grew too much; over less than its period it may still not grow by more."""
        return growth > self.most * max(1.0, elapsed / self.period)

    @property
    def words(self) -> str:
        """As it is set, e.g. `symbol_error>120/h!`."""
        unit = next(word for word, period in _PERIODS.items() if period == self.period)
        return f"{self.counter}>{self.most:g}/{unit}{'!' if self.hard else ''}"


def limits_from(text: str, defaults: tuple[Limit, ...]) -> tuple[Limit, ...]:
    """The limits of a fleet: the defaults, with those that `text` names replaced or off.

    `text` has entries with commas between, `symbol_error>120/h` for one that is told, with `!` at the end for one that
    blocks new work, `rx_drops=off` for none. Raises ValueError that names a bad entry.
    """
    named: dict[str, list[Limit]] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        found, off = _ENTRY.match(entry), _OFF.match(entry)
        if found:
            period = _PERIODS[found["period"]]
            limit = Limit(counter=found["name"], most=float(found["most"]), period=period, hard=bool(found["hard"]))
            named.setdefault(found["name"], []).append(limit)
        elif off:
            named.setdefault(off["name"], [])
        else:
            raise ValueError(f"{entry!r} is no limit of a counter: write e.g. symbol_error>120/h, or symbol_error=off")
    kept = [limit for limit in defaults if limit.counter not in named]
    return (*kept, *(limit for limits in named.values() for limit in limits))


def by_counter(limits: tuple[Limit, ...]) -> Mapping[str, tuple[Limit, ...]]:
    """The limits of each counter."""
    counters = dict.fromkeys(limit.counter for limit in limits)
    return {name: tuple(limit for limit in limits if limit.counter == name) for name in counters}


INFINIBAND_LIMITS: Final = limits_from(
    "excessive_buffer_overrun_errors>0/h!, local_link_integrity_errors>0/h!, symbol_error>120/h!, symbol_error>10/s,"
    " link_downed>0/h, rnr_nak_retry_err>0/h, link_error_recovery>5/min, port_rcv_errors>10/s,"
    " local_ack_timeout_err>1/s, port_xmit_discards>100/s, roce_slow_restart>10/s, carrier_changes>2/h",
    (),
)
EFA_LIMITS: Final = limits_from(
    "no_completion_cmds>0/h!, cmds_err>1/s, retrans_timeout_events>1/s, unresponsive_remote_events>1/s,"
    " impaired_remote_conn_events>1/s, retrans_pkts>1000/s, retrans_bytes>1000000/s, rdma_read_wr_err>1/s,"
    " rdma_write_wr_err>1/s, rx_drops>1/s",
    (),
)
