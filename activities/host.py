"""What the node's own worker does on its host, from the queue `sickbay.names.node_queue`."""

from sickbay.model import Frozen


class ProbeRequest(Frozen):
    """One full pass of the layers, scanning the kernel log of the whole boot."""

    incident_id: str
    expected_gpus: int | None = None


class ResetRequest(Frozen):
    """Reset GPUs, with their clients stopped before and restored after."""

    incident_id: str
    attempt: int
    boot_id: str
    """Refused on another boot: somebody rebooted the node since the intent was recorded."""
    pcis: tuple[str, ...] = ()
    """GPUs to reset, e.g. `0000:61:00`; all of them if empty."""


class ResetReport(Frozen):
    """What came of it."""

    reset: bool
    already: bool = False
    """An earlier try of this incident and attempt had done it."""
    refused: str = ""
    """Why the reset could not be done here, in words (in use, not supported, driver hangs): the next rung is due."""
    clients_stopped: tuple[str, ...] = ()


class RebootRequest(Frozen):
    """Ask the host to reboot. The controller's worker waits for the proof."""

    incident_id: str
    attempt: int
    boot_id: str


class RebootReport(Frozen):
    """What came of it."""

    requested: bool
    already: bool = False
    """The host runs another boot by now, or this attempt was already asked for."""
    refused: str = ""
