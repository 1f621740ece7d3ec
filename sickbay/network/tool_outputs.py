"""Judges outputs that tell of the network without listing ports: fi_info, `ethtool -S`, and logs of links.

Called by `sickbay.network.recorded`. Each function gives None for a text that is not of its tool.
"""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from sickbay.checks import CheckOutcome, healthy, judged, not_applicable, unknown
from sickbay.faults import Fault
from sickbay.network.fabric import nic_fault

FLAPS_A_DAY: Final = 5
"""Lost carriers within 24 hours from which on a link counts as flapping (facts: detection, 4, Azure's rule)."""

_FI_ERROR: Final = re.compile(r"^fi_getinfo: ?(?P<code>-?\d+)", re.MULTILINE)
_NO_DATA: Final = "-61"
"""ENODATA: libfabric knows no provider that fits."""
_PROVIDER: Final = re.compile(r"^\s*provider: (?P<name>\S+)")
_DOMAIN: Final = re.compile(r"^\s*domain: (?P<name>\S+?)(?:-(?:rdm|dgrm))?\s*$")

_STATISTIC: Final = re.compile(r"^\s+(?:\[\d+\]:? )?[\w.:\[\] -]+: -?\d+\s*$")

_STAMP: Final = re.compile(
    r"^(?P<stamp>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)\b|^(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)"
)
_CARRIER: Final = re.compile(
    r"\b(?P<name>[A-Za-z][\w.@-]*)(?:: (?:[^\s:]+ ){0,2}?| NIC )"
    r"(?P<what>lost carrier|gained carrier|link (?:is )?(?:not ready|down|up)|link becomes ready)\b",
    re.IGNORECASE,
)
_LOST: Final = ("lost carrier", "down", "not ready")
_PODS: Final = re.compile(r"^(?:veth|cali|eni|cni|lxc|docker|br-|tunl|vxlan|flannel|cilium|nodelocaldns|lo$|gke)")
"""Interfaces of containers, which lose their carrier whenever a container ends."""

_A_DAY: Final = timedelta(days=1)


def judge_fi_info(text: str) -> CheckOutcome | None:
    """What libfabric's fi_info says: the EFA devices it offers, or that there are none."""
    error = _FI_ERROR.search(text)
    if error and error["code"] == _NO_DATA:
        return not_applicable("fi_info: no EFA provider on this host (-61, no data); trouble where EFA was attached")
    if error:
        return unknown(f"fi_info failed with {error['code']}")
    blocks = re.split(r"^(?=\s*provider:)", text, flags=re.MULTILINE)
    found = [block for block in blocks if _PROVIDER.match(block)]
    if not found:
        return None
    domains = [[match["name"] for line in block.splitlines() if (match := _DOMAIN.match(line))] for block in found]
    if blocks[0].strip():
        return unknown(f"not from fi_info: {blocks[0].strip().splitlines()[0]}")
    if not all(domains):
        return unknown("the output of fi_info is cut: a provider without a domain")
    efa = {names[0] for block, names in zip(found, domains, strict=True) if "provider: efa" in block.splitlines()[0]}
    if not efa:
        return not_applicable("fi_info: providers, and none of EFA")
    return healthy(f"{len(efa)} EFA devices: {', '.join(sorted(efa))}")


def judge_ethtool(text: str) -> CheckOutcome | None:
    """What `ethtool -S` says: totals since the boot, of which none is evidence by itself."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines or lines[0].strip() != "NIC statistics:":
        return None
    odd = [line.strip() for line in lines[1:] if not _STATISTIC.match(line)]
    if odd or len(lines) == 1:
        return unknown(f"not a statistic: {odd[0]}" if odd else "no statistics are listed")
    return healthy(f"{len(lines) - 1} statistics, totals since the boot: only their growth could show a fault")


def judge_link_log(text: str) -> CheckOutcome | None:
    """What a system log says of carriers that were lost and came back."""
    losses: dict[str, dict[str, list[str]]] = {}
    down: dict[str, str] = {}
    told = False
    for line in map(str.strip, text.splitlines()):
        found = _CARRIER.search(line)
        if not found or _PODS.match(found["name"]) or not _STAMP.match(line):
            continue
        told, name, what = True, found["name"], found["what"].lower()
        if what.endswith(_LOST):
            # The kernel and a daemon tell the same loss, each in its own words.
            losses.setdefault(name, {}).setdefault(what, []).append(line)
            down[name] = line
        else:
            down.pop(name, None)
    if not told:
        return None
    faults = [
        fault for name, lines in losses.items() for fault in _flaps(name, lines.values(), now_up=name not in down)
    ]
    flapping = {fault.component.id for fault in faults}
    faults += [nic_fault("nic-link-down", name, line, None) for name, line in down.items() if name not in flapping]
    words = ", ".join(f"{name} {max(map(len, lines.values()))} times" for name, lines in losses.items())
    return judged(faults) if faults else healthy(f"carrier lost and found: {words}" if words else "no carrier was lost")


def _flaps(name: str, told: Iterable[list[str]], *, now_up: bool) -> list[Fault]:
    """A fault if one teller of losses told enough of them within a day."""
    lines = max(told, key=_most_a_day)
    most = _most_a_day(lines)
    if most < FLAPS_A_DAY:
        return []
    evidence = f"{name} lost its carrier {most} times within a day, and is {'up' if now_up else 'down'} at the end"
    fault = nic_fault("nic-flapping", name, evidence, None)
    return [fault.model_copy(update={"count": most, "evidence": (evidence, lines[0], lines[-1])})]


def _most_a_day(lines: list[str]) -> int:
    """The most of these lines that stand within any 24 hours; all of them where a stamp cannot be read."""
    moments = [moment for line in lines if (moment := _moment(line))]
    if len(moments) < len(lines):
        return len(lines)
    moments.sort()
    first = most = 0
    for last, moment in enumerate(moments):
        while moment - moments[first] >= _A_DAY:
            first += 1
        most = max(most, last - first + 1)
    return most


def _moment(line: str) -> datetime | None:
    """When a line was logged; syslog's stamps have no year, of which only differences are used."""
    found = _STAMP.match(line)
    try:
        if found and found["iso"]:
            return datetime.fromisoformat(found["iso"])
        return datetime.strptime(f"2000 {found['stamp']}", "%Y %b %d %H:%M:%S") if found else None  # noqa: DTZ007
    except ValueError:
        return None
