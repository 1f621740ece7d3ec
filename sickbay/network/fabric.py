"""Which ports of a node are its compute fabric, and what is wrong with them.

Called by `sickbay.network.infiniband` for the live node and by `sickbay.network.recorded` for recorded listings. A
node has more ports than those that jobs use: the same family of adapters serves management and storage over Ethernet,
and a port that nobody cabled is no fault. What a port should do is told by the fleet's settings or by its peers; where
neither tells it, people are told and nobody is disturbed.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from sickbay.catalogue import fault_of
from sickbay.checks import CheckMoment
from sickbay.faults import Component, ComponentKind, Fault, merge_faults
from sickbay.model import Frozen
from sickbay.network.ports import LinkLayer, PhysicalState, Port, PortState

TOP_RATES: Final = {
    "MT4115": 100.0,
    "MT4119": 100.0,
    "MT4123": 200.0,
    "MT4124": 200.0,
    "MT4129": 400.0,
    "MT4131": 800.0,
    "0x1013": 100.0,
    "0x1017": 100.0,
    "0x101b": 200.0,
    "0x101c": 200.0,
    "0x1021": 400.0,
    "0x1023": 800.0,
}
"""Gb/s that the fastest adapter with this chip reaches (ConnectX-4 to ConnectX-8, by the names of ibstat and by PCI
device id). Slower cards have the same chips: below it is a reason to tell people, and no fault by itself."""

RAILS: Final = 8
"""An adapter for each GPU of a large node."""
_LEAST_RAILS: Final = 4
RAIL_RATE: Final = 200.0
"""Gb/s per adapter on nodes with eight of them, from the A100 generation (HDR) on."""


class FabricExpectation(Frozen):
    """What the operator says of every node of this fleet."""

    ports: int | None = None
    """Compute ports of a whole node; None where nobody said."""
    rate: float | None = None
    """Gb/s of each; None where nobody said."""
    excused: frozenset[str] = frozenset()
    """Devices (`mlx5_2`), ports (`mlx5_2/1`) and interfaces (`ib3`) that are not part of it."""


class FabricJudgement(Frozen):
    """What is wrong with the compute ports, and what of them could not be judged."""

    ports: tuple[Port, ...]
    """The compute fabric."""
    faults: tuple[Fault, ...] = ()
    unjudged: str = ""


def candidates_of(ports: Iterable[Port], excused: frozenset[str]) -> tuple[Port, ...]:
    """The ports that may be of a compute fabric."""
    return tuple(
        port
        for port in ports
        if not port.virtual and not excused & {port.device, port.name, port.interface or port.name}
    )


def compute_ports(candidates: Sequence[Port], seen_up: frozenset[str] = frozenset()) -> tuple[Port, ...]:
    """The ports of the compute fabric.

    InfiniBand ports where there are any, since Ethernet ports beside them are management; else the ports of the adapter
    model that most ports have, the fastest of several, since a RoCE fabric has one model and management another. Where
    these are few or mostly down, they are a fabric only as far as they are up, or were: a server's spare port is none.
    """
    if any(port.link_layer is LinkLayer.INFINIBAND for port in candidates):
        return tuple(port for port in candidates if port.link_layer is not LinkLayer.ETHERNET)
    ethernet = [port for port in candidates if port.link_layer is LinkLayer.ETHERNET]
    others = [port for port in candidates if port.link_layer is not LinkLayer.ETHERNET]
    main = _main_model(ethernet)
    up = [port for port in main if port.up or port.name in seen_up or None in (port.state, port.physical)]
    whole = len(main) >= _LEAST_RAILS and 2 * len(up) > len(main)
    return (*others, *(main if whole else up))


def judge_fabric(
    ports: Sequence[Port],
    expected: FabricExpectation,
    moment: CheckMoment | None = None,
    seen_up: frozenset[str] = frozenset(),
) -> FabricJudgement:
    """What is wrong with the ports that make the compute fabric.

    `moment` is of a live look, and `seen_up` names ports that were up earlier in this boot.
    """
    candidates = candidates_of(ports, expected.excused)
    fabric = compute_ports(candidates, seen_up)
    told_of = {name for port in fabric for name in _UNCERTAIN if name not in port.missing}
    unread = [port for port in fabric if told_of & set(port.missing) or port.state is None or port.physical is None]
    read = [port for port in fabric if port not in unread]
    faults = [
        *_down(read, moment),
        *_slow(read, expected.rate, moment),
        *_interfaces_down(read, moment),
        *_missing(fabric, candidates, expected.ports, moment),
    ]
    names = ", ".join(f"{port.name} ({', '.join(port.missing)})" for port in unread)
    # Two ports of one adapter with the same trouble are one fault of it.
    return FabricJudgement(
        ports=fabric,
        faults=merge_faults((), faults),
        unjudged=f"cannot be read or are not known: {names}" if unread else "",
    )


_UNCERTAIN: Final = ("state", "phys_state", "rate", "link_layer")
"""Where one port of a listing tells these, each must."""


def port_fault(code: str, port: Port, evidence: str, moment: CheckMoment | None) -> Fault:
    """One fault of the adapter of a port."""
    return nic_fault(code, port.device, f"{port.name}: {evidence}", moment)


def nic_fault(code: str, device: str, evidence: str, moment: CheckMoment | None) -> Fault:
    """One fault of an adapter, seen now where the look is live."""
    component = Component(kind=ComponentKind.NIC, id=device)
    seen, boot_id = (moment.now, moment.boot_id) if moment else (None, None)
    return fault_of(code, component, seen=seen, boot_id=boot_id, evidence=(evidence,))


def _main_model(ethernet: Sequence[Port]) -> tuple[Port, ...]:
    kinds = Counter(port.kind for port in ethernet)
    if len(kinds) < 2:
        return tuple(ethernet)

    def weight(kind: str) -> tuple[int, float]:
        return kinds[kind], max(port.rate or 0.0 for port in ethernet if port.kind == kind)

    main = max(kinds, key=weight)
    return tuple(port for port in ethernet if port.kind == main)


def _down(ports: Iterable[Port], moment: CheckMoment | None) -> list[Fault]:
    found = []
    for port in ports:
        if port.up:
            continue
        code, words = _trouble(port)
        state = f"state {port.state}, physical state {port.physical}"
        found.append(port_fault(code, port, f"{state}: {words}", moment))
    return found


def _trouble(port: Port) -> tuple[str, str]:
    """What a port that is not up waits for: each has another cure."""
    match port.physical:
        case PhysicalState.DISABLED:
            return "nic-port-disabled", "it was switched off; somebody or something must switch it on"
        case PhysicalState.POLLING | PhysicalState.SLEEP:
            return "nic-port-polling", "it finds no partner: look at the cable, the module and the switch's port"
        case PhysicalState.LINK_UP if port.state in (PortState.INIT, PortState.ARMED):
            return "nic-port-init", "the link is up, but no subnet manager has made it ready"
    return "nic-port-down", "it carries no traffic"


def _slow(ports: Iterable[Port], wanted: float | None, moment: CheckMoment | None) -> list[Fault]:
    up = [port for port in ports if port.up and port.rate is not None]
    if wanted is not None:
        words = f"{wanted:g} Gb/s are set for this fleet (SICKBAY_INFINIBAND_RATE)"
        return [_rate_fault("nic-rate-low", port, words, moment) for port in up if (port.rate or 0.0) < wanted]
    found = []
    for kind in sorted({port.kind for port in up}):
        same = [port for port in up if port.kind == kind]
        found += _slower_than_peers(same, moment) or _slower_than_could(same, moment)
    return found


def _slower_than_peers(ports: Sequence[Port], moment: CheckMoment | None) -> list[Fault]:
    ((usual, count),) = Counter(port.rate for port in ports).most_common(1)
    if usual is None or 2 * count <= len(ports):
        return []
    words = f"{count} of {len(ports)} ports like it run at {usual:g} Gb/s"
    return [_rate_fault("nic-rate-low", port, words, moment) for port in ports if (port.rate or 0.0) < usual]


def _slower_than_could(ports: Sequence[Port], moment: CheckMoment | None) -> list[Fault]:
    """Ports that are all alike, and all slower than such adapters or such nodes usually are."""
    native = [port for port in ports if port.device.startswith("mlx5")]
    usual = RAIL_RATE if len(native) >= RAILS else 0.0
    found = []
    for port in native:
        top = TOP_RATES.get(port.model, usual)
        if (port.rate or 0.0) < top:
            words = f"{top:g} Gb/s are usual for such adapters; if this fleet is slower, set SICKBAY_INFINIBAND_RATE"
            found.append(_rate_fault("nic-rate-below-usual", port, words, moment))
    return found


def _rate_fault(code: str, port: Port, words: str, moment: CheckMoment | None) -> Fault:
    return port_fault(code, port, f"runs at {port.rate:g} Gb/s; {words}", moment)


def _interfaces_down(ports: Iterable[Port], moment: CheckMoment | None) -> list[Fault]:
    """Interfaces that are down while most of their peers are up; where all are down, nobody configured them."""
    known = [port for port in ports if port.interface and port.interface_state in ("up", "down")]
    down = [port for port in known if port.interface_state == "down" and port.up]
    if not down or 2 * len(down) >= len(known):
        return []
    words = "network interface {} is down, while the port itself is up and the interfaces of its peers are too"
    return [port_fault("nic-interface-down", port, words.format(port.interface), moment) for port in down]


def _missing(
    ports: Sequence[Port], candidates: Sequence[Port], wanted: int | None, moment: CheckMoment | None
) -> list[Fault]:
    """Too few compute ports: some are gone, or are there and have never been up, which no reboot cures."""
    if wanted is None or len(ports) >= wanted:
        return []
    words = f"{len(ports)} compute ports, and {wanted} are set for this fleet (SICKBAY_INFINIBAND_PORTS)"
    if len(candidates) < wanted:
        return [nic_fault("nic-missing", "unknown", words, moment)]
    down = ", ".join(port.name for port in candidates if port not in ports)
    return [nic_fault("nic-port-down", "unknown", f"{words}; not up: {down}", moment)]
