"""How fast GPUs copy, by product, and the floor below which a copy is too slow.

Peaks are NVIDIA's own figures: PCIe of the product's generation with 16 lanes (8 for an L4), half of the memory's
bandwidth for a copy within the GPU, which reads and writes, and one direction of all NVLinks. The floor is a quarter of
the peak by default, far below what a well GPU reaches even on a busy host (autopilot advises it; Azure expects three
quarters: facts: detection, 6). A product that is not in the table has no floor.
"""

import re
from typing import Final

from sickbay.active.answers import Rate
from sickbay.gpu_readings.products import is_share
from sickbay.model import Frozen


class Peaks(Frozen):
    """What a product can reach, in GB/s; None where pairs or hosts differ too much for a limit."""

    host: float
    device: float
    peer: float | None = None
    all_reduce: float | None = None
    """Bus bandwidth that a well node must show in NCCL's all-reduce of 1 GiB over its GPUs: a floor, not a peak
    (facts: detection, 6: Azure, DCGM's preflight)."""


_PEAKS: Final = (
    ("GB200", Peaks(host=63, device=4000, peer=900, all_reduce=300)),
    ("B300", Peaks(host=63, device=4000, peer=900, all_reduce=300)),
    ("B200", Peaks(host=63, device=4000, peer=900, all_reduce=300)),
    ("H200 NVL", Peaks(host=63, device=2400)),
    (r"\bH200\b", Peaks(host=63, device=2400, peer=450, all_reduce=300)),
    ("H100 PCIe", Peaks(host=63, device=1000)),
    ("H100 NVL", Peaks(host=63, device=1950)),
    ("H100", Peaks(host=63, device=1675, peer=450, all_reduce=300)),
    ("A100-SXM", Peaks(host=31.5, device=775, peer=300, all_reduce=150)),
    ("A100", Peaks(host=31.5, device=775)),
    (r"\bL40S\b", Peaks(host=31.5, device=430)),
    (r"\bL4\b", Peaks(host=15.75, device=150)),
    (r"\bA10G?\b", Peaks(host=31.5, device=300)),
    ("V100", Peaks(host=15.75, device=450)),
    (r"\bT4\b", Peaks(host=15.75, device=160)),
)
"""By a pattern in the product's name; the first that fits counts."""

KINDS: Final = {
    "host_to_device": "from the host",
    "device_to_host": "to the host",
    "device_to_device": "within the GPU",
    "peer": "to another GPU",
}


def peaks_of(product: str) -> Peaks | None:
    """The figures of a product, by NVML's or CUDA's name for it; None if it is not known, or a share of a GPU."""
    if is_share(product):
        return None
    return next((peaks for pattern, peaks in _PEAKS if re.search(pattern, product)), None)


def too_slow(rate: Rate, product: str, share: float) -> str:
    """In words, how far a copy is below the floor, which is this share of the product's peak; empty if it is not."""
    peaks = peaks_of(product)
    if peaks is None or rate.what not in KINDS:
        return ""
    peak = {"device_to_device": peaks.device, "peer": peaks.peer}.get(rate.what, peaks.host)
    if peak is None or rate.gigabytes_per_second >= peak * share:
        return ""
    return (
        f"copies {KINDS[rate.what]} at {rate.gigabytes_per_second:.1f} GB/s, of which {peak * share:.1f} is the least"
        f" ({share:.0%} of {peak:g})"
    )
