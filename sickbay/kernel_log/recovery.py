"""The driver's own verdict on a GPU, which outranks every table of codes (facts: detection, 1e)."""

import re
from enum import StrEnum
from typing import Final

from sickbay.faults import Rung


class RecoveryAction(StrEnum):
    """What the driver says a GPU needs, as Xid 154 and `nvidia-smi -q` word it."""

    NONE = "none"
    GPU_RESET = "gpu reset required"
    NODE_REBOOT = "node reboot required"
    DRAIN_P2P = "drain p2p"
    DRAIN_AND_RESET = "drain and reset"
    RECOVER_IMEX_DOMAIN = "recover imex domain"
    BUS_RESET = "bus reset"
    SYSTEM_REBOOT = "system reboot"
    UNREADABLE = "unreadable"

    @property
    def rung(self) -> Rung:
        """The gentlest rung that carries the action out. What no rung of ours does is a human's."""
        return _RUNGS[self]


_RUNGS: Final = {
    RecoveryAction.NONE: Rung.NONE,
    RecoveryAction.GPU_RESET: Rung.RESET_GPU,
    RecoveryAction.NODE_REBOOT: Rung.REBOOT,
    # The work that talks from GPU to GPU must end; then the driver says what else is needed.
    RecoveryAction.DRAIN_P2P: Rung.STOP_WORKLOAD,
    RecoveryAction.DRAIN_AND_RESET: Rung.RESET_GPU,
    RecoveryAction.RECOVER_IMEX_DOMAIN: Rung.HUMAN,
    RecoveryAction.BUS_RESET: Rung.RESET_GPU,
    RecoveryAction.SYSTEM_REBOOT: Rung.REBOOT,
    RecoveryAction.UNREADABLE: Rung.HUMAN,
}

_BY_VALUE: Final = {
    0: RecoveryAction.NONE,
    1: RecoveryAction.GPU_RESET,
    2: RecoveryAction.NODE_REBOOT,
    3: RecoveryAction.DRAIN_P2P,
    4: RecoveryAction.DRAIN_AND_RESET,
    5: RecoveryAction.RECOVER_IMEX_DOMAIN,
}

_CHANGE = re.compile(r"recovery action changed from .*?\bto\b\s*(?P<value>0x[0-9a-f]{1,8})?\s*(?:\((?P<words>[^)]*))?")


def read_recovery_action(text: str) -> RecoveryAction | None:
    """The action that an Xid 154 changed to. None of a line cut before it; `UNREADABLE` of an action not known here."""
    found = _CHANGE.search(text.lower())
    if not found or (found["value"] is None and not found["words"]):
        return None
    words = (found["words"] or "").strip()
    if words in _WORDS:
        return RecoveryAction(words)
    return _BY_VALUE.get(int(found["value"] or "-1", 16), RecoveryAction.UNREADABLE)


_WORDS: Final = frozenset(action.value for action in RecoveryAction if action is not RecoveryAction.UNREADABLE)
