"""Reads `nvidia-smi topo -m`: what joins each pair of GPUs.

Columns are told by counting, since those after the devices run into each other. The legend at the end proves that the
matrix is whole. Which GPUs should be joined only the others of the machine tell: where all are joined alike but one,
that one has lost its links.
"""

import re
from collections import Counter
from typing import Final

from sickbay.catalogue import fault_of
from sickbay.checks import CheckOutcome, CheckResult, healthy, judged, not_applicable, unknown
from sickbay.faults import Component, ComponentKind, Fault
from sickbay.gpu_readings import product_of
from sickbay.recorded.model import RecordedContext

_NVLINKS: Final = re.compile(r"^NV(\d+)$")
_CELL: Final = re.compile(r"^(?:X|NV\d+|SYS|NODE|PHB|PXB|PIX|SOC|N/A)$")
_GPU: Final = re.compile(r"^GPU\d+$")
_LEGEND: Final = re.compile(r"^\s*NV#\s*=", re.MULTILINE)
_NIC_LEGEND: Final = re.compile(r"^\s*(NIC\d+):", re.MULTILINE)
_FEWEST_PEERS: Final = 3
"""GPUs that must agree before another one counts as different."""

Matrix = dict[str, dict[str, str]]


def looks_like_topology(text: str) -> bool:
    """Whether a line is the head of such a matrix."""
    return _head(text) != []


def judge_topology(text: str, context: RecordedContext) -> CheckOutcome:
    """What the matrix says of the NVLinks between GPUs. Raises nothing."""
    devices = _head(text)
    matrix = _matrix(text, devices)
    gpus = [device for device in devices if _GPU.match(device)]
    gaps = _gaps(text, devices, matrix)
    links = {gpu: _links(gpu, gpus, matrix) for gpu in gpus}
    faults = [] if gaps else _faults(links)
    outcome = judged(faults, "; ".join(gaps))
    if outcome.result is not CheckResult.HEALTHY:
        return outcome
    if len(gpus) < 2 or not any(any(row) for row in links.values()):
        joined = len(gpus) > 1 and any(product_of(name).joined for name in context.products)
        return (
            unknown("no NVLink joins GPUs whose board has them") if joined else not_applicable("no NVLink joins GPUs")
        )
    if len({tuple(sorted(row)) for row in links.values()}) > 1:
        return unknown("the GPUs are joined unevenly: what the machine's board intends is not known")
    return healthy(f"{len(gpus)} GPUs are joined alike by NVLinks")


def _head(text: str) -> list[str]:
    """The devices that the columns stand for."""
    for line in text.splitlines():
        words = line.split()
        if words and _GPU.match(words[0]) and all(not _CELL.match(word) for word in words):
            return words[: words.index("CPU")] if "CPU" in words else words
    return []


def _matrix(text: str, devices: list[str]) -> Matrix:
    matrix: Matrix = {}
    for line in text.splitlines():
        words = line.split()
        row = words[1 : len(devices) + 1]
        if words and words[0] in devices and len(row) == len(devices) and all(map(_CELL.match, row)):
            matrix[words[0]] = dict(zip(devices, row, strict=True))
    return matrix


def _gaps(text: str, devices: list[str], matrix: Matrix) -> list[str]:
    gaps = []
    if missing := [device for device in devices if device not in matrix]:
        gaps.append(f"the rows of {', '.join(missing)} are missing or broken")
    nics = {device for device in devices if device.startswith("NIC")}
    if not _LEGEND.search(text) or not nics <= set(_NIC_LEGEND.findall(text)):
        gaps.append("it is cut before its end")
    if any(matrix[one].get(other) != matrix[other].get(one) for one in matrix for other in matrix):
        gaps.append("its halves do not agree")
    return gaps


def _links(gpu: str, gpus: list[str], matrix: Matrix) -> list[int]:
    """NVLinks from a GPU to each of the others; 0 for a pair without."""
    row = matrix.get(gpu, {})
    found = (_NVLINKS.match(row.get(other, "")) for other in gpus if other != gpu)
    return [int(match[1]) if match else 0 for match in found]


def _faults(links: dict[str, list[int]]) -> list[Fault]:
    """GPUs with fewer links than the others have among each other."""
    usual = Counter(max(row, default=0) for row in links.values()).most_common(1)[0][0] if links else 0
    odd = [gpu for gpu, row in links.items() if usual and all(count < usual for count in row)]
    even = [gpu for gpu in links if gpu not in odd]
    # Among the others, all pairs must be joined alike: then the odd one is the exception, and not the board's plan.
    alike = all(links[gpu].count(usual) == len(even) - 1 for gpu in even)
    if not odd or not alike or len(even) < _FEWEST_PEERS:
        return []
    component = Component(kind=ComponentKind.NVLINK, id="unknown")
    return [
        fault_of(
            "nvlink-down", component, evidence=(f"{gpu}: {max(links[gpu])} NVLinks to its peers, {usual} elsewhere",)
        )
        for gpu in odd
    ]
