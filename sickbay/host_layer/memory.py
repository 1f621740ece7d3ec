"""Errors of the host's memory, as the kernel's EDAC drivers and its own books count them since the boot.

Called by `health.host`. Virtual machines mostly have no EDAC driver: then only the pages count that the kernel gave up.
"""

import re
from datetime import timedelta
from typing import Final

from sickbay.checks import CheckMoment, CheckOutcome, judged, not_applicable, unknown
from sickbay.counter_tracks import CounterMemory, Sample, growth, with_sample
from sickbay.faults import Component, ComponentKind, Fault
from sickbay.file_readings import FileReadings, Wanted
from sickbay.host_layer.said import MEMORY, remembered, seen

_CONTROLLERS: Final = "/sys/devices/system/edac/mc"
_MEMINFO: Final = "/proc/meminfo"

MEMORY_WANTED: Final = Wanted(
    files=(
        _MEMINFO,
        f"{_CONTROLLERS}/mc*/ue_count",
        f"{_CONTROLLERS}/mc*/ue_noinfo_count",
        f"{_CONTROLLERS}/mc*/ce_count",
    )
)

CORRECTED_AN_HOUR: Final = 10
"""Corrected errors of one controller within an hour that are told; a well one has a few in a year."""
_HOUR: Final = timedelta(hours=1)

_COUNT: Final = re.compile(rf"^{_CONTROLLERS}/(?P<controller>mc\d+)/(?P<kind>ue|ce)_\w+$")
_LOST_PAGES: Final = re.compile(r"^HardwareCorrupted:\s+(\d+) kB$", re.MULTILINE)


def judge_memory(readings: FileReadings, moment: CheckMoment) -> CheckOutcome:
    """Uncorrected errors of this boot, corrected ones that come fast, and pages that were given up."""
    if "MemTotal:" not in readings.texts.get(_MEMINFO, ""):
        return unknown(readings.why(_MEMINFO), moment.memory)
    lost = _LOST_PAGES.search(readings.texts[_MEMINFO])
    counts = [(count, text) for path, text in sorted(readings.texts.items()) if (count := _COUNT.match(path))]
    if not lost and not counts:
        return not_applicable("this kernel counts no errors of memory: neither EDAC nor HardwareCorrupted is there")
    tracks = dict(remembered(CounterMemory, moment).tracks)
    found: list[Fault] = []
    unread = []
    for count, text in counts:
        path, part = count[0], Component(kind=ComponentKind.MEMORY, id=count["controller"])
        if not text.isdecimal():
            unread.append(path)
        elif count["kind"] == "ue" and int(text):
            found.append(seen("host-memory-uncorrected", part, moment, f"{path}: {text} since the boot"))
        elif count["kind"] == "ce":
            track = with_sample(tracks.get(path), Sample(at=moment.now.timestamp(), value=int(text)), _HOUR)
            tracks[path] = track
            if growth(track) > CORRECTED_AN_HOUR:
                grown = f"{path} grew by {growth(track)} within an hour"
                found.append(seen("host-memory-corrected", part, moment, grown))
    if lost and int(lost[1]):
        words = f"{_MEMINFO}: {lost[1]} kB of memory are given up as faulty"
        found.append(seen("host-memory-pages-lost", MEMORY, moment, words))
    unjudged = f"no number: {', '.join(unread)}" if unread else ""
    return judged(found, unjudged, CounterMemory(tracks=tracks).model_dump_json())
