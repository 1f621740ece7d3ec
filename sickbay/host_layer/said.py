"""Faults of the host layer's rules, and the parts they are in, by the names that the kernel log's faults have too."""

from typing import Final, TypeVar

from pydantic import ValidationError

from sickbay.catalogue import fault_of
from sickbay.checks import CheckMoment
from sickbay.faults import Component, ComponentKind, Fault
from sickbay.model import Frozen

HOST: Final = Component(kind=ComponentKind.HOST, id="host")
DRIVER: Final = Component(kind=ComponentKind.DRIVER, id="nvidia")
MEMORY: Final = Component(kind=ComponentKind.MEMORY, id="unknown")

Memory = TypeVar("Memory", bound=Frozen)


def seen(code: str, component: Component, moment: CheckMoment, *evidence: str) -> Fault:
    """A fault that is there now."""
    return fault_of(code, component, seen=moment.now, boot_id=moment.boot_id, evidence=evidence)


def remembered(model: type[Memory], moment: CheckMoment) -> Memory:
    """What the check's last run of this boot left; the model's defaults if that is nothing, or cannot be read."""
    try:
        return model.model_validate_json(moment.memory)
    except ValidationError:
        return model()


def young(moment: CheckMoment, seconds: float) -> bool:
    """Whether the boot is so recent that its parts may still be coming."""
    return (moment.now - moment.boot_seen_at).total_seconds() < seconds
