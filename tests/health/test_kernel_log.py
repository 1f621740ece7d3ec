import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from health import kernel_log
from health.kernel_log import KernelLogReader, KernelRecord

from .records import KernelLogFile

SOON = 20.0


@pytest.fixture
def log(tmp_path: Path) -> KernelLogFile:
    return KernelLogFile(tmp_path / "kmsg")


@pytest.fixture
def reader(log: KernelLogFile) -> Iterator[KernelLogReader]:
    made = KernelLogReader(log.path, rate=100_000)
    made.start()
    yield made
    made.stop()


def messages(records: tuple[KernelRecord, ...]) -> list[str]:
    return [record.text.decode().split(";", 1)[1] for record in records if record.text]


def test_the_log_is_read_from_the_start_of_the_boot_and_then_followed(
    log: KernelLogFile, reader: KernelLogReader
) -> None:
    log.write("first", "second")
    assert messages(reader.take_all(SOON).records) == ["first", "second"]
    log.write("third")
    taken = reader.take_all(SOON)
    assert [record.sequence for record in taken.records] == [2]
    assert (taken.caught_up, taken.problem) == (True, "")
    assert reader.take_all(SOON).records == ()


def test_a_record_written_in_two_halves_is_one(log: KernelLogFile, reader: KernelLogReader) -> None:
    record = log.record("a record in two halves")
    with log.path.open("ab", buffering=0) as file:
        file.write(record[:9])
        assert reader.take_all(SOON).records == ()
        file.write(record[9:])
    assert messages(reader.take_all(SOON).records) == ["a record in two halves"]


def test_dictionary_lines_and_records_without_a_head_are_skipped(log: KernelLogFile, reader: KernelLogReader) -> None:
    with log.path.open("ab") as file:
        file.write(
            log.record("one") + b" SUBSYSTEM=pci\n DEVICE=+pci:0000:61:00.0\nnonsense\n\xff\xfe;\n" + log.record("two")
        )
    assert messages(reader.take_all(SOON).records) == ["one", "two"]
    assert reader.malformed == 2


def test_the_log_of_a_new_boot_is_read_from_its_start(log: KernelLogFile, reader: KernelLogReader) -> None:
    log.write("old boot")
    reader.take_all(SOON)
    log.replace()
    log.write("new boot")
    taken = reader.take_all(SOON)
    while not taken.records:
        taken = reader.take_all(SOON)
    assert messages(taken.records) == ["new boot"]


def test_what_a_program_wrote_is_numbered_but_not_believed(log: KernelLogFile, reader: KernelLogReader) -> None:
    log.write("from the kernel")
    log.write("from a container", priority=8 + 3)
    taken = reader.take_all(SOON)
    assert messages(taken.records) == ["from the kernel"]
    assert [record.sequence for record in taken.records] == [0, 1]


def test_for_a_drill_what_a_program_wrote_is_believed(log: KernelLogFile) -> None:
    reader = KernelLogReader(log.path, rate=1000, trust_user_records=True)
    reader.start()
    log.write("from a drill", priority=8 + 3)
    assert messages(reader.take_all(SOON).records) == ["from a drill"]
    reader.stop()


def test_a_log_that_is_not_there_is_told_and_read_once_it_is(log: KernelLogFile) -> None:
    log.path.unlink()
    reader = KernelLogReader(log.path, rate=1000)
    assert reader.take().problem == "not read yet"
    reader.start()
    while (taken := reader.take_all(0.05)).problem == "not read yet":
        pass
    assert taken.problem == f"cannot read {log.path}: No such file or directory"
    log.path.write_bytes(log.record("back"))
    while not (taken := reader.take_all(SOON)).records:
        pass
    assert messages(taken.records) == ["back"]
    reader.stop()


def test_a_flood_waits_until_it_is_taken_and_loses_nothing(log: KernelLogFile) -> None:
    flood = 3000
    log.write(*(f"line {number}" for number in range(flood)))
    reader = KernelLogReader(log.path, rate=50_000)
    reader._rate = 1000  # what may wait; the pace stays quick for the test
    reader.start()
    numbers: list[int] = []
    while len(numbers) < flood:
        taken = reader.take()
        numbers += [record.sequence for record in taken.records]
    assert numbers == list(range(flood))
    reader.stop()


def test_a_thread_that_hangs_in_its_read_is_told(
    log: KernelLogFile, reader: KernelLogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader.take_all(SOON)
    monkeypatch.setattr(kernel_log, "_SILENT_SECONDS", -1.0)
    assert reader.take().problem == "reading it hangs"


def test_the_real_kernel_log_can_be_read() -> None:
    path = Path("/dev/kmsg")
    if not os.access(path, os.R_OK):
        pytest.skip("/dev/kmsg cannot be read by this user")
    reader = KernelLogReader(path, rate=100_000)
    reader.start()
    taken = reader.take_all(SOON)
    reader.stop()
    assert taken.problem == ""
    numbers = [record.sequence for record in taken.records]
    assert numbers == sorted(set(numbers))
    assert reader.malformed == 0
