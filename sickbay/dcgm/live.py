"""What the live checks make of a judgement: when and in which boot it holds, and of which GPU by the kernel's address.

Called by `health.dcgm`. DCGM's host engine remembers every Xid until it starts anew, also over a reset that cured it
(facts: detection, 3b). So an Xid is told at the first look that shows it, and the check's record keeps it open until a
proof; at later looks it is only remembered. What DCGM measures anew each time is told each time.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from pydantic import ValidationError

from sickbay.checks import CheckMoment, CheckOutcome, CheckResult, healthy, judged
from sickbay.dcgm.tables import read_table
from sickbay.faults import Component, Fault, Rung
from sickbay.gpu_readings.products import Topology, product_of
from sickbay.model import Frozen

_INDEX: Final = "index "
_REMEMBERED: Final = ("xid-", "dcgm-xid")
_DOWN: Final = "nvlink-down"
_ADDRESS: Final = re.compile(
    r"PCI Bus ID:\s*(?P<domain>[0-9a-f]{4,8}):(?P<slot>[0-9a-f]{2}:[0-9a-f]{2})\.", re.IGNORECASE
)


class HealthMemory(Frozen):
    """What a look at DCGM's health leaves for the next one of the same boot."""

    told: tuple[str, ...] = ()
    """Xids that were told, each with its part."""
    watched_since: datetime | None = None
    """When we switched the health watches on; None if they were on."""

    @classmethod
    def of(cls, moment: CheckMoment) -> "HealthMemory":
        """What the last look left; nothing if that cannot be read."""
        try:
            return cls.model_validate_json(moment.memory)
        except ValidationError:
            return cls()


def addresses(discovery: str) -> dict[str, str]:
    """The PCI addresses of DCGM's GPU numbers, from `dcgmi discovery -l`; without those that cannot be read."""
    table = read_table(discovery)
    found: dict[str, str] = {}
    number = ""
    for row in table.rows if table else ():
        number = row.name or number
        address = _ADDRESS.search(row.value)
        if address and number.isdigit():
            found[number] = f"{address['domain'].lower()[-4:]}:{address['slot'].lower()}"
    return found


def needs_addresses(outcome: CheckOutcome) -> bool:
    """Whether a fault knows its part by DCGM's number alone."""
    return any(fault.component.id.startswith(_INDEX) for fault in outcome.faults)


def seen_live(outcome: CheckOutcome, moment: CheckMoment, known: Mapping[str, str]) -> CheckOutcome:
    """The outcome with its time and boot, and with addresses where they are known."""
    return outcome.model_copy(update={"faults": tuple(_seen(fault, moment, known) for fault in outcome.faults)})


def without_absent_links(outcome: CheckOutcome, products: Iterable[str]) -> CheckOutcome:
    """The outcome without links that are down on GPUs of products that need not have them (NVSentinel#1481).

    DCGM takes a card without a bridge for one with broken links. What a card's links were is known by NVML's check,
    which remembers them. Of a product that is not known the word blocks new work, and ends none.
    """
    known = [product_of(name) for name in products]
    down = tuple(fault for fault in outcome.faults if fault.code == _DOWN)
    if not down or not known or any(product.joined for product in known):
        return outcome
    others = tuple(fault for fault in outcome.faults if fault.code != _DOWN)
    if any(product.topology is Topology.UNKNOWN for product in known):
        milder = tuple(fault.model_copy(update={"rung": Rung.BLOCK_NEW_WORK}) for fault in down)
        return outcome.model_copy(update={"faults": (*others, *milder)})
    if others or outcome.why:
        return judged(others, outcome.why, outcome.memory)
    return healthy("DCGM calls links down that these GPUs need not have", outcome.memory)


def without_remembered(outcome: CheckOutcome, memory: HealthMemory) -> CheckOutcome:
    """The outcome of a look at DCGM's health without Xids that an earlier one has told, and its own memory."""
    keys = {_key(fault): fault for fault in outcome.faults if _is_remembered(fault)}
    # What a whole report no longer shows DCGM has forgotten: should it come again, it has happened again.
    whole = outcome.result is CheckResult.HEALTHY or (outcome.result is CheckResult.FAULTS and not outcome.why)
    told = tuple(keys) if whole else tuple(dict.fromkeys((*memory.told, *keys)))
    after = memory.model_copy(update={"told": told}).model_dump_json()
    new = tuple(fault for fault in outcome.faults if _key(fault) not in memory.told)
    if new or outcome.result is not CheckResult.FAULTS:
        return outcome.model_copy(update={"faults": new, "memory": after})
    if outcome.why:
        return outcome.model_copy(update={"result": CheckResult.UNKNOWN, "faults": (), "memory": after})
    return healthy(f"DCGM only remembers {_names(keys.values())}", after)


def _seen(fault: Fault, moment: CheckMoment, known: Mapping[str, str]) -> Fault:
    part = fault.component
    number = part.id.removeprefix(_INDEX) if part.id.startswith(_INDEX) else ""
    return fault.model_copy(
        update={
            "component": Component(kind=part.kind, id=known.get(number, part.id)),
            "first_seen": moment.now,
            "last_seen": moment.now,
            "boot_id": moment.boot_id,
        }
    )


def _is_remembered(fault: Fault) -> bool:
    return fault.code.startswith(_REMEMBERED)


def _key(fault: Fault) -> str:
    return f"{fault.code} {fault.component.kind} {fault.component.id}"


def _names(faults: Iterable[Fault]) -> str:
    return ", ".join(dict.fromkeys(f"{fault.code} of {fault.component.id}" for fault in faults))
