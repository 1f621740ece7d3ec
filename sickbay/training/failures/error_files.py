"""What launchers record of a failed rank: torchelastic's error files, torchrun's block, an agent's own record.

Used by `folder`. Traps (facts: training, 2.2): times are whole seconds; a worker that died by a signal writes no file
and gets the time at which the agent noticed; `message` is an object or a plain string; a file may be cut anywhere, and
a record that is printed may be no JSON at all. So everything is read by its fields, and nothing raises.
"""

import json
import re
from datetime import UTC, datetime
from typing import Any, Final

from sickbay.training.evidence import LINE_LENGTH, ErrorRecord, LogState, RankEvidence, Sign, Source
from sickbay.training.failures.patterns import found_in

_ENTRY: Final = re.compile(r"^\s*\[(?P<number>\d+)\]:\s*$")
_FIELD: Final = re.compile(r"^\s*(?P<name>time|host|rank|exitcode|error_file|traceback|msg)\s*: ?\s*(?P<value>.*)$")
_RANK: Final = re.compile(r"(\d+)")
_RECORD: Final = re.compile(r'"(?P<rank>\d{1,6})":\s*\{')
_EXIT: Final = re.compile(r'"exitcode":\s*(?P<exit>-?\d{1,6})')
_NODE: Final = re.compile(r"\b(?P<node>[a-z][\w-]*-\d+)\s+restart \d+ fails|\b(?P<worker>worker-\d+)\b")
_MESSAGE: Final = re.compile(r'"message":\s*(?:\{\s*"message":\s*)?"(?P<text>(?:[^"\\]|\\.){0,4000})')
_STAMP: Final = re.compile(r'"timestamp":\s*"?(?P<time>\d{9,11})')
_EXCEPTION: Final = re.compile(r"^(?P<type>(?:[A-Za-z_][\w.]*)?(?:Error|Exception|Exit|Interrupt|Timeout)):")
LONGEST_FILE: Final = 4 << 20
"""Characters of a file that are looked at; of a log, its last ones, where a launcher has its say."""
RANKS_MOST: Final = 4096
BODY: Final = 40_000


def error_of(text: str) -> ErrorRecord | None:
    """One torchelastic error file; None for one that is empty or says nothing."""
    text = text[:LONGEST_FILE].strip()
    if not text:
        return None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return _by_fields(text)
    return _by_content(content)


def errors_in(text: str) -> tuple[RankEvidence, ...]:
    """Every rank that a launcher's block or an agent's record tells of, in some text."""
    text = text[-LONGEST_FILE:]
    return (*_torchrun_block(text), *_agent_record(text))[:RANKS_MOST]


def _by_content(content: Any) -> ErrorRecord | None:
    if not isinstance(content, dict):
        return None
    message, stamp, extra = content.get("message"), content.get("timestamp"), content.get("extraInfo")
    if isinstance(message, dict):
        extra = message.get("extraInfo")
        message = message.get("message")
    if isinstance(extra, dict):
        stamp = extra.get("timestamp", stamp)
    if not isinstance(message, str):
        return None
    code = content.get("errorCode")
    return _record(message, stamp, code if isinstance(code, int) else None)


def _by_fields(text: str) -> ErrorRecord | None:
    """A file that is no JSON, cut somewhere."""
    message, stamp = _MESSAGE.search(text), _STAMP.search(text)
    if message is None:
        return None
    record = _record(_unescaped(message["text"]), stamp["time"] if stamp else None, None)
    return record.model_copy(update={"partial": True})


def _record(message: str, stamp: Any, code: int | None) -> ErrorRecord:
    match = _EXCEPTION.match(message)
    return ErrorRecord(
        message=message[:LINE_LENGTH], exception=match["type"] if match else "", at=_time(stamp), exit_code=code
    )


def _time(stamp: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(float(str(stamp)[:32]), UTC).replace(microsecond=0)
    except (ValueError, OverflowError, OSError):
        return None


def _torchrun_block(text: str) -> tuple[RankEvidence, ...]:
    """The block that torchrun prints; `Root Cause` is only the first it noticed, and a tie is no cause."""
    found: list[RankEvidence] = []
    fields: dict[str, str] = {}
    body: list[str] = []

    def flush() -> None:
        if "exitcode" in fields and "rank" in fields:
            found.append(_from_block(fields, "\n".join(body)))
        fields.clear()
        body.clear()

    inside = False
    for line in text.splitlines():
        if _ENTRY.match(line):
            flush()
            inside = True
        elif inside and (match := _FIELD.match(line)) is not None:
            if match["name"] in ("time", "host") and match["name"] in fields:
                flush()
            fields[match["name"]] = match["value"].strip()
        elif line.startswith(("---", "===")) or line.strip().startswith(("Root Cause", "Other Failures")):
            flush()
            inside = line.strip().startswith(("Root Cause", "Other Failures"))
        elif inside or fields:
            body.append(line)
        elif (match := _FIELD.match(line)) is not None and match["name"] in ("exitcode", "rank"):
            fields[match["name"]] = match["value"].strip()
    flush()
    return tuple(found)


def _from_block(fields: dict[str, str], body: str) -> RankEvidence:
    rank = _RANK.search(fields["rank"])
    code = re.match(r"(-?\d+)", fields["exitcode"])
    number = int(code[1]) if code else None
    error = error_of(body) if '"message"' in body else None
    words = error.message if error else fields.get("traceback", "")
    return RankEvidence(
        rank=int(rank[1]) if rank else None,
        node=fields.get("host", ""),
        exit_code=normal(number),
        log=LogState.CUT,
        error=error,
        signs=_signs(words) if error else (),
        exited_at=_local_time(fields.get("time", "")),
    )


def _agent_record(text: str) -> tuple[RankEvidence, ...]:
    """Records by rank as DLRover's agent prints them, which are often no valid JSON."""
    found = []
    node = _NODE.search(text)
    starts = [match for match, _ in zip(_RECORD.finditer(text), range(RANKS_MOST), strict=False)]
    ends = [*(match.start() for match in starts[1:]), len(text)]
    for match, end in zip(starts, ends, strict=False):
        body = text[match.end() : min(end, match.end() + BODY)]
        code = _EXIT.search(body)
        if code is None:
            continue
        message, stamp = _MESSAGE.search(body), _STAMP.search(body)
        words = _unescaped(message["text"]) if message else ""
        found.append(
            RankEvidence(
                rank=int(match["rank"]),
                node=(node["node"] or node["worker"]) if node else "",
                exit_code=normal(int(code["exit"])),
                log=LogState.CUT,
                error=_record(words, stamp["time"] if stamp else None, int(code["exit"])) if words else None,
                signs=_signs(words),
            )
        )
    return tuple(found)


def normal(code: int | None) -> int | None:
    """An exit code as a shell tells it: 128 + n for signal n, which torchelastic writes as -n."""
    return 128 - code if code is not None and code < 0 else code


def _signs(words: str) -> tuple[Sign, ...]:
    return tuple(
        Sign(code=code, source=Source.ERROR_FILE, line=line[:LINE_LENGTH], details=details)
        for line in words.splitlines()[:20]
        for code, details in found_in(line)
    )


def _unescaped(text: str) -> str:
    return text.replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\")


def _local_time(text: str) -> datetime | None:
    try:
        return datetime.strptime(text[:19], "%Y-%m-%d_%H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return None
