"""Reads `patterns.toml` and finds what a line says.

One line may say several things; each row is found once in it. Lines of noise say nothing, whatever else stands in them,
except for what comes before their advice.
"""

import re
import tomllib
from collections.abc import Iterator
from enum import StrEnum
from importlib import resources
from typing import Final

from pydantic_core import SchemaValidator, core_schema

from sickbay.model import Frozen

LONGEST_LINE: Final = 4096
"""Characters of a line that are looked at: an assertion or a configuration may be endless."""


class Kind(StrEnum):
    """What a row is evidence of; see the head of the table."""

    HARDWARE = "hardware"
    PLATFORM = "platform"
    NETWORK = "network"
    DISRUPTION = "disruption"
    MEMORY = "memory"
    CONFIG = "config"
    APPLICATION = "application"
    AMBIGUOUS = "ambiguous"
    NUMERICS = "numerics"
    CHECKPOINT = "checkpoint"
    HANG = "hang"
    CASCADE = "cascade"
    POLICY = "policy"
    CONTEXT = "context"
    NOISE = "noise"


class Pattern(Frozen):
    """One row."""

    code: str
    kind: Kind
    source: str
    regex: str


class _File(Frozen):
    version: str
    pattern: tuple[Pattern, ...]


def _read() -> _File:
    text = resources.files("sickbay.training.failures").joinpath("patterns.toml").read_text(encoding="utf-8")
    return _File.model_validate(tomllib.loads(text))


_FILE: Final = _read()
PATTERNS: Final = {pattern.code: pattern for pattern in _FILE.pattern}
_COMPILED: Final = [(pattern, re.compile(pattern.regex)) for pattern in _FILE.pattern]
_ADVICE: Final = re.compile(PATTERNS["advice"].regex)
# What almost every line of a healthy log lacks: a cheap test before the table. Python tries each of its words at each
# character, which takes a second for a megabyte; the regular expressions of pydantic, which are Rust's, look for all at
# once (as in `sickbay.kernel_log.stream`).
_WORDS: Final = (
    r"(?i)error|fail|exception|nan|inf\b|kill|signal|abort|closed|reset|lost|timeout|timed out|stuck|missing|"
    r"warn|mismatch|evict|preempt|oom|cancel|exiting|exit|end time|train|terminat|deletion|low on resource|"
    r"unrecognized|pressure|space|shm|denied|refused|xid|assert|overflow|unavailable|destroy|complete|broken|"
    r"stale|not found|%\||imagepull|backoff|notready|nodelost|slowdown|spot|breakdown|rank|ready|cannot|"
    r"unable|duplicate|in use|unknown|interrupt|corrupt|eof|died|mem|outof|status|^node:|assigned|nodename|"
    r"local_plan|phase|traceback|arrow_|filelock|huggingface|builder"
)
_PREFILTER: Final = SchemaValidator(core_schema.str_schema(pattern=_WORDS, regex_engine="rust-regex", strict=True))


def kind_of(code: str) -> Kind:
    """The kind of a code; context for one that is not in the table."""
    pattern = PATTERNS.get(code)
    return pattern.kind if pattern is not None else Kind.CONTEXT


def found_in(line: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Codes that a line shows, with what their groups caught, in the order of the table."""
    line = line[:LONGEST_LINE]
    if not _PREFILTER.isinstance_python(line):
        return
    if (advice := _ADVICE.search(line)) is not None:
        line = line[: advice.start()]
    for pattern, regex in _COMPILED:
        if pattern.kind is not Kind.NOISE and (match := regex.search(line)) is not None:
            yield pattern.code, {name: value for name, value in match.groupdict().items() if value}
