"""Reads what tools print of RDMA ports: ibstat, ibstatus, `rdma link`, and dumps of sysfs as lines or as JSON.

Called by `sickbay.network.recorded`. A line that belongs to none of these, in a text that else does, is told: it may be
the error with which a tool stopped, and what it had still to print is then missing.
"""

import json
import re
from collections.abc import Iterator
from typing import Final

from sickbay.file_readings import FileReadings
from sickbay.model import Frozen
from sickbay.network.ports import Port, port_from
from sickbay.network.sysfs import ports_of


class Listing(Frozen):
    """What a tool printed of the ports."""

    ports: tuple[Port, ...] = ()
    troubles: tuple[str, ...] = ()
    """Lines that are no part of a listing, and what is missing of it."""


_ADAPTER: Final = re.compile(r"^CA '(?P<device>[^']+)'$")
_PORT: Final = re.compile(r"^Port (?P<number>\d+):$")
_FIELD: Final = re.compile(r"^(?P<name>[A-Za-z][A-Za-z ]*?):\s*(?P<value>.*)$")
_IBSTAT: Final = {"State": "state", "Physical state": "phys_state", "Rate": "rate", "Link layer": "link_layer"}

_STATUS: Final = re.compile(r"^Infiniband device '(?P<device>[^']+)' port (?P<number>\d+) status:$")
_STATUS_FIELD: Final = re.compile(r"^(?P<name>[a-z][a-z_ ]*?):\s+(?P<value>.*)$")
_IBSTATUS: Final = {"state": "state", "phys state": "phys_state", "rate": "rate", "link_layer": "link_layer"}

_LINK: Final = re.compile(
    r"^(?:\d+/\d+: |link )(?P<device>[\w.-]+)/(?P<number>\d+):? (?:.*?\b)?state (?P<state>\S+)"
    r"(?:.*? physical_state (?P<physical>\S+))?(?:.*? netdev (?P<interface>\S+))?"
)
_PATH: Final = re.compile(r"^(?P<path>/\S*/[\w.-]+): ?(?P<value>.*)$")
_HEAD: Final = re.compile(r"^==> (?P<path>/\S+) <==$")
"""What `head` and `tail` print above each of several files."""


def ibstat(text: str) -> Listing | None:
    """The ports that ibstat printed; None if it is no output of ibstat."""
    if not re.search(r"^CA '", text, re.MULTILINE):
        return None
    ports: list[Port] = []
    troubles: list[str] = []
    for device, lines in _blocks(text, _ADAPTER, troubles):
        wanted, found = _adapter(device, lines, troubles)
        ports += found
        if wanted != len(found):
            told = "how many ports it has is not told" if wanted is None else f"{wanted} ports"
            troubles.append(f"{device}: {told}, and {len(found)} are listed")
    return Listing(ports=tuple(ports), troubles=tuple(troubles))


def _adapter(device: str, lines: list[str], troubles: list[str]) -> tuple[int | None, list[Port]]:
    """How many ports an adapter says it has, and those that are listed."""
    model, wanted = "", None
    told: dict[str, dict[str, str]] = {}
    number = ""
    for line in lines:
        port, field = _PORT.match(line), _FIELD.match(line)
        if port:
            number = port["number"]
            told[number] = {}
        elif not field:
            troubles.append(line)
        elif field["name"] == "CA type":
            model = field["value"]
        elif field["name"] == "Number of ports":
            wanted = int(field["value"]) if field["value"].isdecimal() else None
        elif number and field["name"] in _IBSTAT:
            told[number][_IBSTAT[field["name"]]] = field["value"]
        elif field["name"].startswith("ib"):
            troubles.append(line)
    ports = [port_from(device, number, values, bare_rate=True) for number, values in told.items()]
    return wanted, [port.model_copy(update={"model": model}) for port in ports]


def ibstatus(text: str) -> Listing | None:
    """The ports that ibstatus printed; None if it is no output of ibstatus."""
    if not re.search(r"^Infiniband device '", text, re.MULTILINE):
        return None
    ports: list[Port] = []
    troubles: list[str] = []
    for name, lines in _blocks(text, _STATUS, troubles):
        told = {}
        for line in lines:
            field = _STATUS_FIELD.match(line)
            if not field:
                troubles.append(line)
            elif field["name"] in _IBSTATUS:
                told[_IBSTATUS[field["name"]]] = field["value"]
        device, _, number = name.partition("/")
        ports.append(port_from(device, number, told))
    return Listing(ports=tuple(ports), troubles=tuple(troubles))


def rdma_link(text: str) -> Listing | None:
    """The ports that `rdma link` printed; None if it is no output of it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = [(_LINK.match(line), line) for line in lines]
    if not any(match for match, _ in found):
        return None
    ports, troubles = [], []
    for match, line in found:
        if match is None:
            troubles.append(line)
            continue
        told = {"state": match["state"], "phys_state": match["physical"] or ""}
        port = port_from(match["device"], match["number"], {**told, **_layer_of(match["interface"] or "")})
        # It tells neither rate nor link layer: that these are not there is no sign of a cut.
        missing = tuple(name for name in port.missing if name in ("state", "phys_state"))
        ports.append(port.model_copy(update={"interface": match["interface"] or "", "missing": missing}))
    return Listing(ports=tuple(ports), troubles=tuple(troubles))


def sysfs_dump(text: str) -> Listing | None:
    """The ports of a dump of sysfs, as `path: value` lines or as a JSON object; None if it is none."""
    troubles: list[str] = []
    texts = _json_texts(text)
    if texts is None:
        texts = _line_texts(text, troubles)
    if not any("/infiniband/" in path for path in texts):
        return None
    return Listing(ports=ports_of(FileReadings(texts=texts)), troubles=tuple(troubles))


def _line_texts(text: str, troubles: list[str]) -> dict[str, str]:
    """Texts by path of `path: value` lines, or of values below lines with their path."""
    texts: dict[str, str] = {}
    above = ""
    for line in filter(None, (line.strip() for line in text.splitlines())):
        head, found = _HEAD.match(line), _PATH.match(line)
        if head:
            above = head["path"]
        elif above:
            texts[above], above = line, ""
        elif found:
            texts[found["path"]] = found["value"].strip()
        else:
            troubles.append(line)
    return texts


def _json_texts(text: str) -> dict[str, str] | None:
    """Texts by path of a JSON object; None if it is no such object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return {str(path): entry.strip() for path, entry in value.items() if isinstance(entry, str)}


def _layer_of(interface: str) -> dict[str, str]:
    """`rdma link` tells no link layer; the kernel's names of interfaces do, and those that people gave do not."""
    if re.match(r"^ib[a-z]*\d", interface):
        return {"link_layer": "InfiniBand"}
    return {"link_layer": "Ethernet"} if re.match(r"^(?:eth|en[opsx])\d", interface) else {}


def _blocks(text: str, head: re.Pattern[str], troubles: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Each head's name with the lines that follow it, stripped; what stands before the first is trouble."""
    name, lines = "", list[str]()
    for line in filter(None, (line.strip() for line in text.splitlines())):
        found = head.match(line)
        if not found:
            (lines if name else troubles).append(line)
            continue
        if name:
            yield name, lines
        name, lines = "/".join(filter(None, found.groups())), []
    if name:
        yield name, lines
