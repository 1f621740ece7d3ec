"""AWS Neuron: hardware errors that the driver of Trainium and Inferentia prints."""

import re

from sickbay.faults import Component, ComponentKind
from sickbay.kernel_log.lines import Line
from sickbay.kernel_log.sighting import UNKNOWN, Memory, Sighting

KEYS = ("NEURON_HW_ERR",)

_ERROR = re.compile(r"NEURON_HW_ERR=(?P<word>[A-Z_]{1,48})")
_CODES = {
    "SRAM_UNCORRECTABLE_ERROR": "neuron-sram-uncorrectable",
    "NC_UNCORRECTABLE_ERROR": "neuron-nc-uncorrectable",
    "HBM_UNCORRECTABLE_ERROR": "neuron-hbm-uncorrectable",
    "DMA_ERROR": "neuron-dma-error",
}


def recognise(line: Line, memory: Memory) -> Sighting | None:  # noqa: ARG001 -- every recogniser has this shape
    """The fault of a Neuron line. An error word that is not known here gets a code without a row, hence `watch`."""
    found = _ERROR.search(line.text)
    if not found:
        return None
    code = _CODES.get(found["word"]) or "neuron-" + found["word"].strip("_").lower().replace("_", "-")
    return Sighting(code, Component(kind=ComponentKind.ACCELERATOR, id=UNKNOWN), line)
