"""Judges a page of dcgm-exporter.

Called by the live check and by `sickbay.dcgm.recorded`. A page is well only if it tells of each GPU its last Xid and
whether row remapping failed: temperatures are no proof of health. A family that tells of fewer GPUs than the others is
a torn page. GPUs are told apart by UUID; a MIG slice counts to its parent.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from sickbay.catalogue import fault_of
from sickbay.checks import CheckOutcome, healthy, judged, unknown
from sickbay.dcgm.exporter_families import REMAP_FAILURE, XID, XID_COUNTS, Meaning, meaning_of
from sickbay.dcgm.exporter_page import Page, Sample, read_page
from sickbay.dcgm.last_xids import LastXids, code_of_last_xid, with_xids
from sickbay.dcgm.reported import together
from sickbay.faults import Component, ComponentKind, Fault
from sickbay.gpu_readings.products import product_of

FRESH: Final = timedelta(minutes=5)
"""Age past which a sample with a time of its own is old; the exporter's own period is at most a minute."""

_EVENTS: Final = "DCGM_EXP_"
_LINKS: Final = frozenset(("dcgm-nvlink-counts",))


def judge_page(
    text: str, expected_gpus: int | None = None, now: datetime | None = None, before: LastXids | None = None
) -> CheckOutcome:
    """What a page says. With `now` its samples' times count; `before` is what an earlier look remembered."""
    page = read_page(text)
    of_gpus: dict[str, list[Sample]] = {}
    for sample in page.samples:
        if sample.uuid:
            of_gpus.setdefault(sample.uuid, []).append(sample)
    if not of_gpus:
        return unknown("; ".join(("no sample of any GPU is on the page", *page.troubles)), _memory(before, {}))
    found: list[Fault] = []
    unjudged = [*page.troubles, *_torn(page, of_gpus), *_too_few(of_gpus, expected_gpus), *_stale(page, now)]
    for samples in of_gpus.values():
        meanings = [(sample, meaning_of(sample)) for sample in samples]
        found += [_fault(sample, meaning) for sample, meaning in meanings if meaning.code]
        unjudged += [f"{_name(sample)}: {meaning.unjudged}" for sample, meaning in meanings if _open(sample, meaning)]
        unjudged += _missing_families(samples)
        found += _faults_of_last_xid(samples, before)
    memory = _memory(before, _last_xids(of_gpus))
    outcome = judged(together(found), "; ".join(dict.fromkeys(unjudged))[:400], memory)
    return outcome if outcome.faults or outcome.why else healthy(f"GPUs on the page: {len(of_gpus)}", memory)


def _memory(before: LastXids | None, seen: Mapping[str, int]) -> str:
    return with_xids(before, seen).model_dump_json()


def _torn(page: Page, of_gpus: Mapping[str, list[Sample]]) -> Iterator[str]:
    """Families that tell of some GPUs only; those of events have no samples of GPUs without one."""
    gpus: dict[str, set[str]] = {}
    for sample in page.samples:
        if sample.uuid and not sample.family.startswith(_EVENTS):
            gpus.setdefault(sample.family, set()).add(sample.uuid)
    for family, told in gpus.items():
        if len(told) < len(of_gpus):
            yield f"{family} tells of {len(told)} of {len(of_gpus)} GPUs"


def _too_few(of_gpus: Mapping[str, list[Sample]], expected: int | None) -> tuple[str, ...]:
    return (f"it tells of {len(of_gpus)} of {expected} GPUs",) if expected and len(of_gpus) < expected else ()


def _stale(page: Page, now: datetime | None) -> tuple[str, ...]:
    stamps = [sample.stamp for sample in page.samples if sample.stamp is not None]
    if now is None or not stamps:
        return ()
    age = now.timestamp() - min(stamps) / 1000
    return (f"its samples are {age:.0f} s old",) if age > FRESH.total_seconds() else ()


def _missing_families(samples: list[Sample]) -> Iterator[str]:
    families = {sample.family for sample in samples}
    if not families & {XID, XID_COUNTS}:
        yield f"{_name(samples[0])}: no {XID}"
    if REMAP_FAILURE not in families and _remaps_rows(samples[0]):
        yield f"{_name(samples[0])}: no {REMAP_FAILURE}" + (", as of MIG slices" if samples[0].sliced else "")


def _open(sample: Sample, meaning: Meaning) -> bool:
    """Whether a sample should have judged and did not. GPUs before Ampere have no rows to remap, and tell blanks."""
    return bool(meaning.unjudged) and (sample.family != REMAP_FAILURE or _remaps_rows(sample))


def _remaps_rows(sample: Sample) -> bool:
    return product_of(sample.labels.get("modelName", "")).remaps_rows is not False


def _faults_of_last_xid(samples: list[Sample], before: LastXids | None) -> Iterator[Fault]:
    for sample in samples:
        if sample.family == XID and sample.value:
            code = code_of_last_xid(sample.uuid, int(sample.value), before)
            if code:
                yield _fault(sample, Meaning(code))


def _last_xids(of_gpus: Mapping[str, list[Sample]]) -> dict[str, int]:
    """The last Xid of each GPU; of a sliced one, of the slice that has the highest number."""
    return {
        uuid: max(int(value) for value in values)
        for uuid, samples in of_gpus.items()
        if (values := [sample.value for sample in samples if sample.family == XID and sample.value is not None])
    }


def _fault(sample: Sample, meaning: Meaning) -> Fault:
    kind = ComponentKind.NVLINK if meaning.code in _LINKS else ComponentKind.GPU
    value = "blank" if sample.value is None else f"{sample.value:g}"
    known = "".join(f", {name} {sample.labels[name]}" for name in ("xid", "err_msg") if sample.labels.get(name))
    evidence = f"dcgm-exporter: {_name(sample)}: {sample.family} is {value}{known}"
    fault = fault_of(meaning.code, Component(kind=kind, id=_component_id(sample)), evidence=(evidence,))
    return fault if meaning.rung is None else fault.model_copy(update={"rung": meaning.rung})


def _component_id(sample: Sample) -> str:
    """The address `00000000:53:00.0` as the kernel writes it; the exporter's number where it tells no address."""
    domain, _, rest = sample.labels.get("pci_bus_id", "").lower().partition(":")
    if domain and rest.count(":") == 1:
        return f"{domain[-4:]}:{rest.rsplit('.', 1)[0]}"
    return f"index {sample.labels['gpu']}" if sample.labels.get("gpu") else "unknown"


def _name(sample: Sample) -> str:
    slice_ = f" slice {sample.labels['GPU_I_ID']}" if sample.sliced else ""
    return f"GPU {sample.labels.get('gpu', '?')} ({sample.uuid}){slice_}"
