"""Reads a whole log, of any size, in constant memory and about as fast as `grep` does.

Nearly all lines of a syslog are none of ours, so that the time goes into finding that out. Python cannot look for
thirty words at once; the regular expressions of pydantic, which are Rust's, can (1 GB in about a second). They are
asked block by block, and line by line only in a small block that holds a word.
"""

import re
from collections.abc import Iterator
from typing import BinaryIO, Final

from pydantic_core import SchemaValidator, core_schema

from sickbay.kernel_log.families import FAMILIES
from sickbay.kernel_log.scanner import KernelLogScanner

CHUNK: Final = 1 << 20
"""Bytes read at a time, and the longest line that is read whole."""
BLOCK: Final = 1 << 13
"""Bytes asked about at a time: few enough that most blocks of a common log hold no word of ours."""
SMALL_BLOCK: Final = 1 << 10
"""Bytes asked about at a time inside a block that does."""

_CONTROL_SHARE_AT_MOST: Final = 0.3
_CONTROL: Final = bytes({*range(32), 127} - {*b"\t\n\r\f\x1b"})
_HIGH: Final = bytes(range(128, 256))

_WORDS: Final = SchemaValidator(
    core_schema.str_schema(
        pattern="|".join(re.sub(r"([^\w ])", r"\\\1", key) for family in FAMILIES for key in family.keys),
        regex_engine="rust-regex",
        strict=True,
    )
)


class NotTextError(Exception):
    """The input is no text; the message says what it seems to be, and what to do."""


def feed_stream(stream: BinaryIO, scanner: KernelLogScanner) -> int:
    """Feeds a scanner with the lines of a log that may show a fault; returns how many bytes the log has.

    Raises `NotTextError` on binary input, and OSError as the stream does.
    """
    size, rest = 0, b""
    while data := stream.read(CHUNK):
        if not size:
            _must_be_text(data)
        size += len(data)
        rest = _feed_whole_lines(rest + data, scanner)
    if rest:
        _feed_chunk(rest, scanner)
    return size


def _feed_whole_lines(data: bytes, scanner: KernelLogScanner) -> bytes:
    """Feeds all but the last line, which may be incomplete, and returns that. A line without an end is cut."""
    end = data.rfind(b"\n") + 1
    if not end and len(data) >= CHUNK:
        end = len(data)
    _feed_chunk(data[:end], scanner)
    return data[end:]


def _feed_chunk(chunk: bytes, scanner: KernelLogScanner) -> None:
    for block in _blocks(chunk, BLOCK):
        if scanner.reads_stack or _holds_word(block):
            for small_block in _blocks(block, SMALL_BLOCK):
                if scanner.reads_stack or _holds_word(small_block):
                    _feed_lines(small_block, scanner)


def _feed_lines(block: bytes, scanner: KernelLogScanner) -> None:
    for line in block.split(b"\n"):
        if scanner.reads_stack or _holds_word(line):
            scanner.feed(line)


def _blocks(data: bytes, size: int) -> Iterator[bytes]:
    """The data in blocks of whole lines, each a line longer than the size at most."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start + size) + 1 or len(data)
        yield data[start:end]
        start = end


def _holds_word(data: bytes) -> bool:
    # Latin-1 decodes any bytes at hardly any cost, and all our words are ASCII.
    return _WORDS.isinstance_python(data.decode("latin-1"))


def _must_be_text(data: bytes) -> None:
    if data.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh")):
        raise NotTextError("is compressed; unpack it into a pipe, for example `zcat FILE | sickbay diagnose -`")
    if data.startswith(b"LPKSHHRH"):
        raise NotTextError("is a journal file; use `journalctl --file FILE -k | sickbay diagnose -`")
    # A machine that died leaves runs of zeros in its last log; they make no log binary.
    data = data.replace(b"\0" * 8, b"")
    odd = len(data) - len(data.translate(None, _CONTROL))
    try:
        data[:-4].decode("utf-8")
    except UnicodeDecodeError:
        odd += len(data) - len(data.translate(None, _HIGH))
    if not data or odd / len(data) > _CONTROL_SHARE_AT_MOST:
        raise NotTextError("is binary; give a kernel log as text, for example the output of `dmesg`")
