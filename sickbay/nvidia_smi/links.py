"""Reads `nvidia-smi nvlink -s` (states) and `-e` (counts of errors), and judges them.

That a link is down says something only of a product whose links are always there; a card without a bridge has none, and
with MIG they are off (facts: detection, 8.16). No line of a link at all is worse than an inactive one: the tool says in
a sentence that all are inactive, and for a product without NVLinks it says nothing.
"""

import re
from typing import Final

from sickbay.catalogue import fault_of
from sickbay.checks import CheckOutcome, CheckResult, healthy, judged, not_applicable, unknown
from sickbay.faults import Component, ComponentKind, Fault
from sickbay.gpu_readings import LinkAnswer, Topology, product_of
from sickbay.model import Frozen
from sickbay.nvidia_smi.listing import GPU_LINE
from sickbay.nvidia_smi.naming import address_by_uuid, counted
from sickbay.recorded.model import RecordedContext

_STATE: Final = re.compile(
    r"^\s*Link (?P<link>\d+): (?:(?P<speed>[\d.]+) GB/s|(?P<down><?inactive>?|<?disabled>?))\s*$", re.I
)
_COUNT: Final = re.compile(r"^\s*Link (?P<link>\d+): (?P<name>[A-Za-z][\w .()/-]*?)\s*: (?P<value>\S+)(?: \w+)?\s*$")
_ALL_INACTIVE: Final = re.compile(r"all links are in-?active", re.IGNORECASE)
_MIG: Final = re.compile(r"not supported for devices in MIG mode", re.IGNORECASE)
_ERROR_NAME: Final = re.compile(r"error|fail|recover|replay|crc|discard", re.IGNORECASE)
_NOT_AN_ERROR: Final = re.compile(r"successful|total|BER\b|FEC|symbol", re.IGNORECASE)
"""What NVLink 5 corrects as it should, and sums that hold it."""


class _Gpu(Frozen):
    """What was printed of one GPU's links."""

    index: int
    name: str
    uuid: str
    links: tuple[LinkAnswer, ...] = ()
    errors: tuple[str, ...] = ()
    """Counts above zero, in words."""
    counted: frozenset[int] = frozenset()
    """Links whose errors were counted."""
    all_inactive: bool = False
    mig: bool = False
    left_out: str = ""
    """A line that is none of this output."""


def looks_like_links(text: str) -> bool:
    """Whether GPUs are followed by links, or by the sentence that there are none."""
    lines = text.splitlines()
    return any(GPU_LINE.match(line) for line in lines) and any(
        _STATE.match(line) or _COUNT.match(line) or _ALL_INACTIVE.search(line) or _MIG.search(line) for line in lines
    )


def judge_no_output(context: RecordedContext) -> CheckOutcome:
    """What it says that nothing was printed: for a product without NVLinks, what `nvlink -s` prints."""
    if context.products and all(product_of(name).topology is Topology.NONE for name in context.products):
        return not_applicable(f"{context.products[0]} has no NVLinks, of which nothing is printed")
    return unknown(
        "it is empty, which is nothing to judge: give a recording of `nvidia-smi -q` of the same machine too"
    )


def judge_links(text: str, context: RecordedContext) -> CheckOutcome:
    """What the links say. Raises nothing."""
    gpus = _read(text)
    faults = [fault for gpu in gpus for fault in _faults(gpu, len(gpus), context)]
    open_questions = [words for gpu in gpus if (words := _open(gpu, len(gpus)))]
    numbers = {len(gpu.links) or len(gpu.counted) for gpu in gpus if not (gpu.mig or gpu.all_inactive)}
    if len(numbers) > 1:
        open_questions.append("not all GPUs show as many links")
    if context.expected_gpus is not None and len(gpus) < context.expected_gpus:
        open_questions.append(f"{len(gpus)} of {context.expected_gpus} GPUs are shown")
    outcome = judged(faults, "; ".join(dict.fromkeys(open_questions)))
    if outcome.result is not CheckResult.HEALTHY:
        return outcome
    if not numbers:
        why = "with MIG, NVLinks are off" if any(gpu.mig for gpu in gpus) else "no bridge joins these cards"
        return not_applicable(why)
    return healthy(f"{counted(len(gpus))} with {max(numbers)} links each")


def _read(text: str) -> list[_Gpu]:
    gpus: list[_Gpu] = []
    for line in text.splitlines():
        header = GPU_LINE.match(line)
        if header:
            gpus.append(_Gpu(index=int(header["index"]), name=header["name"], uuid=header["uuid"]))
        elif gpus and line.strip():
            gpus[-1] = _with_line(gpus[-1], line)
    return gpus


def _with_line(gpu: _Gpu, line: str) -> _Gpu:
    state, count = _STATE.match(line), _COUNT.match(line)
    if state:
        link = LinkAnswer(index=int(state["link"]), active=state["down"] is None)
        return gpu.model_copy(update={"links": (*gpu.links, link)})
    if count:
        named = _ERROR_NAME.search(count["name"]) and not _NOT_AN_ERROR.search(count["name"])
        words = (f"link {count['link']}: {count['name']} {count['value']}",) if named and _above_zero(count) else ()
        counted = gpu.counted | {int(count["link"])}
        return gpu.model_copy(update={"counted": counted, "errors": (*gpu.errors, *words)})
    if _ALL_INACTIVE.search(line):
        return gpu.model_copy(update={"all_inactive": True})
    if _MIG.search(line):
        return gpu.model_copy(update={"mig": True})
    return gpu.model_copy(update={"left_out": line.strip()})


def _above_zero(count: re.Match[str]) -> bool:
    return count["value"].isdecimal() and int(count["value"]) > 0


def _faults(gpu: _Gpu, shown: int, context: RecordedContext) -> list[Fault]:
    component = Component(kind=ComponentKind.NVLINK, id=address_by_uuid(gpu.uuid, context))
    named = f"GPU {gpu.index} ({gpu.uuid})"
    product = product_of(gpu.name)
    found = []
    down = [link.index for link in gpu.links if link.active is False]
    if gpu.all_inactive and product.joined and not _may_be_alone(gpu, shown):
        found.append(fault_of("nvlink-down", component, evidence=(f"{named}: all NVLinks are inactive",)))
    elif down and product.joined and (len(down) < len(gpu.links) or not _may_be_alone(gpu, shown)):
        words = f"{named}: NVLinks {', '.join(map(str, down))} of {len(gpu.links)} are inactive"
        found.append(fault_of("nvlink-down", component, evidence=(words,)))
    if gpu.errors:
        words = f"{named}: {len(gpu.errors)} counts above zero, {', '.join(gpu.errors[:4])}"
        found.append(fault_of("nvlink-errors", component, evidence=(words,)))
    return found


def _may_be_alone(gpu: _Gpu, shown: int) -> bool:
    """Whether it may be the only GPU of a virtual machine, whose links lead nowhere."""
    return shown == 1 and gpu.index == 0


def _open(gpu: _Gpu, shown: int) -> str:
    """Why the links of one GPU cannot be judged."""
    product = product_of(gpu.name)
    lines = len(gpu.links) or len(gpu.counted)
    if gpu.left_out:
        return f"GPU {gpu.index} has a line that is no link's: {gpu.left_out}"
    if gpu.mig:
        return ""
    inactive = gpu.all_inactive or (bool(gpu.links) and not any(link.active for link in gpu.links))
    if inactive:
        if product.topology in (Topology.BRIDGE, Topology.NONE):
            return ""
        lonely = product.joined and _may_be_alone(gpu, shown)
        return (
            f"all NVLinks of GPU {gpu.index} are inactive, which may be as it should"
            if lonely or not product.joined
            else ""
        )
    if not lines:
        return f"GPU {gpu.index} shows no link"
    if product.topology is Topology.UNKNOWN:
        return f"how many NVLinks {gpu.name} should have is not known"
    if product.joined and product.links is not None and lines < product.links:
        return f"GPU {gpu.index} shows {lines} of {product.links} links"
    if not product.joined and any(link.active is False for link in gpu.links):
        return f"some NVLinks of GPU {gpu.index} are inactive, as they may be beside a bridge"
    return ""
