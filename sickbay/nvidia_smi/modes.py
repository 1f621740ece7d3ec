"""Readings that are words: why the clocks are low, how the fabric is, what the driver asks for.

Called by `readings`. Words become NVML's numbers, which the rules know; a word that is not known here becomes none of
the good ones.
"""

from typing import Final

from sickbay.gpu_readings import ClockReason, FabricAnswer
from sickbay.nvidia_smi import cells
from sickbay.nvidia_smi.blocks import Block

_ACTIONS: Final = {
    "none": 0,
    "reset": 1,
    "gpu reset": 1,
    "reboot": 2,
    "node reboot": 2,
    "drain p2p": 3,
    "drain and reset": 4,
    "recover imex domain": 5,
    "bus reset": 6,
    "system reboot": 7,
}
"""nvidia-smi's words for NVML's recovery actions."""

_SECTIONS: Final = ("clocks_event_reasons", "clocks_throttle_reasons")
_XML_PREFIXES: Final = ("clocks_event_reason_", "clocks_throttle_reason_")
_REASONS: Final = {
    "idle": ClockReason.IDLE,
    "gpu_idle": ClockReason.IDLE,
    "applications_clocks_setting": ClockReason.APPLICATION_SETTING,
    "sw_power_cap": ClockReason.SOFTWARE_POWER_CAP,
    "hw_slowdown": ClockReason.HARDWARE_SLOWDOWN,
    "hw_thermal_slowdown": ClockReason.HARDWARE_THERMAL,
    "hw_power_brake_slowdown": ClockReason.POWER_BRAKE,
    "sync_boost": ClockReason.SYNC_BOOST,
    "sw_thermal_slowdown": ClockReason.SOFTWARE_THERMAL,
}

_STATES: Final = {"not supported": 0, "not started": 1, "in progress": 2, "completed": 3}
_STATUSES: Final = {"success": 0, "not supported": 3, "timeout": 10, "insufficient resources": 23, "in use": 19}
_SUMMARIES: Final = {"healthy": 1, "unhealthy": 2, "limited capacity": 3}
_SO, _NOT_SO = 1, 2
_FLAGS: Final = (
    (0, "bandwidth", {"full": _NOT_SO, "degraded": _SO}),
    (2, "route_recovery_in_progress", {"true": _SO, "false": _NOT_SO}),
    (4, "route_unhealthy", {"true": _SO, "false": _NOT_SO}),
    (6, "access_timeout_recovery", {"true": _SO, "false": _NOT_SO}),
)
"""Fields of the health mask: shift, name, and the number of each word."""
_CONFIGURATIONS: Final = (
    ("none", 1),
    ("guid", 2),
    ("chassis", 3),
    ("partition", 4),
    ("nvlink", 5),
    ("firmware", 6),
    ("fw", 6),
    ("location", 7),
    ("state", 8),
)
_OTHER_CONFIGURATION: Final = 15
_CONFIGURATION_SHIFT: Final = 8


def recovery_action(block: Block) -> int | None:
    """The driver's own verdict: of the field that has the word since driver 570, else of the two before it."""
    action = _ACTIONS.get(cells.plain(block.text("gpu_recovery_action", "recovery_action")))
    if action is not None:
        return action
    if _old_field(block, "drain_and_reset_recommended"):
        return 4
    required = _old_field(block, "reset_required")
    return None if required is None else int(required)


def clock_reasons(block: Block) -> int | None:
    """Bits of `ClockReason`; None unless the three reasons that matter are told."""
    for section in _SECTIONS:
        mask = cells.plain(block.text(f"{section}_active"))
        if mask.startswith("0x"):
            return _hexadecimal(mask)
    told: dict[ClockReason, bool] = {}
    for value in (value for section in _SECTIONS for value in _within(block, section)):
        reason, active = _REASONS.get(value[0]), cells.truth(value[1])
        if reason is not None and active is not None:
            told[reason] = active
    if ClockReason.HARDWARE_SLOWDOWN not in told:
        return None
    return sum(int(reason) for reason, active in told.items() if active)


def fabric(block: Block) -> FabricAnswer | None:
    """How the GPU stands with the fabric manager; None if it does not tell."""
    state = _STATES.get(_fabric_word(block, "state"))
    if state is None:
        return None
    status = _fabric_word(block, "status")
    return FabricAnswer(
        state=state,
        status=None if status in cells.NO_DATA else _STATUSES.get(status, cells.UNKNOWN_ERROR),
        cluster_uuid=_fabric_word(block, "clusteruuid"),
        clique=cells.number(_fabric_word(block, "cliqueid")),
        health_mask=_health_mask(block),
        health_summary=_SUMMARIES.get(_health_word(block, "summary")),
    )


def unknown_words(block: Block) -> tuple[str, ...]:
    """Values in places that matter whose words are not known here, as `name: word`."""
    places = (
        ("recovery action", block.text("gpu_recovery_action", "recovery_action"), _ACTIONS),
        ("fabric state", block.text("fabric/state", "fabric_state"), _STATES),
        ("fabric health", block.text("fabric/health/summary", "fabric_health_summary"), _SUMMARIES),
    )
    return tuple(
        f"{name}: {text}"
        for name, text, known in places
        if not cells.is_no_data(text) and cells.error_in(text) is None and cells.plain(text) not in known
    )


def _old_field(block: Block, name: str) -> bool | None:
    return cells.truth(block.text(f"gpu_reset_status/{name}", f"gpu_reset_status_{name}", f"reset_status_{name}"))


def _within(block: Block, section: str) -> list[tuple[str, str]]:
    found = []
    for value in block.values:
        if value.path.startswith(f"{section}/"):
            name = value.path.rsplit("/", 1)[-1]
            for prefix in _XML_PREFIXES:
                name = name.removeprefix(prefix)
            found.append((name, value.text))
        elif value.path.startswith(f"{section}_"):
            found.append((value.path.removeprefix(f"{section}_"), value.text))
    return found


def _hexadecimal(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None


def _fabric_word(block: Block, name: str) -> str:
    return cells.plain(block.text(f"fabric/{name}", f"fabric_{name}"))


def _health_word(block: Block, name: str) -> str:
    return cells.plain(block.text(f"fabric/health/{name}", f"fabric_health_{name}"))


def _health_mask(block: Block) -> int:
    mask = 0
    for shift, name, words in _FLAGS:
        mask |= words.get(_health_word(block, name), 0) << shift
    configuration = _health_word(block, "incorrect_configuration")
    if configuration not in cells.NO_DATA:
        known = (number for word, number in _CONFIGURATIONS if word in configuration)
        mask |= next(known, _OTHER_CONFIGURATION) << _CONFIGURATION_SHIFT
    return mask
