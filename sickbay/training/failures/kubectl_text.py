"""Reads what kubectl printed: JSON and YAML, whole, cut anywhere, or standing in the middle of other text.

Used by `pod_texts` and `cluster_texts`. People save `kubectl get pods -o json`, paste half of a YAML document into a
ticket, and cut where it gets long. What is there is read as far as it goes; nothing raises, on any text. It reads the
part of YAML that kubectl writes (blocks, scalars on several lines, `[]` and `{}`), some hundred times as fast as a
whole reader would: a gang's pods are megabytes.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

LARGEST: Final = 64 << 20
"""Characters of one text that are looked at."""
OBJECTS_MOST: Final = 50_000
DEEPEST: Final = 64
SMALL: Final = 1 << 16
FAILURES_MOST: Final = 200
"""Braces in a text that begin no JSON; a log may be full of them."""

_JSON_START: Final = re.compile(r"^[ \t]*[{\[][ \t]*$|^\{\"", re.MULTILINE)
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\Z)|[{}\[\],]', re.DOTALL)
_YAML_START: Final = re.compile(r"^(?:- )?(?:apiVersion|kind|metadata|spec|status|items|involvedObject):", re.MULTILINE)
_KEY: Final = re.compile(
    r"(?P<key>\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'|[^\s'\"#:\-][^:#\n]*?|-[^\s:][^:\n]*?):(?:\s+(?P<rest>.*))?$"
)
_NUMBER: Final = re.compile(r"-?\d{1,18}")
_BLOCK: Final = re.compile(r"[|>][+-]?\d?$")


def objects_in(text: str) -> list[Mapping[str, Any]]:
    """Every Kubernetes object in some text, lists taken apart; a lone `status` or `metadata` counts as an object."""
    text = text[:LARGEST]
    found: list[Mapping[str, Any]] = []
    for document in _documents(text):
        found += _taken_apart(document, 0)
        if len(found) >= OBJECTS_MOST:
            break
    return found[:OBJECTS_MOST]


def part(value: Any, *names: str) -> Mapping[str, Any]:
    """The mapping below these names; empty where there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def members(value: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The mappings in a list; empty where there is none."""
    found = value.get(name)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list | tuple) else []


def word(value: Any, most: int = 400) -> str:
    """A scalar as text; empty for a container and for null."""
    return str(value)[:most] if isinstance(value, str | int | float) else ""


def words(value: Any) -> dict[str, str]:
    """Labels or annotations."""
    return {str(key): word(item, 4096) for key, item in value.items()} if isinstance(value, Mapping) else {}


def repaired(text: str) -> str:
    """JSON that was cut somewhere, closed behind its last whole value."""
    closers: list[str] = []
    safe = 0
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in "{[":
            closers.append("}" if mark == "{" else "]")
            safe = token.end()
        elif mark in "}]":
            if not closers or closers.pop() != mark:
                break
            safe = token.end()
            if not closers:
                break
        elif mark == ",":
            safe = token.start()
    return text[:safe] + "".join(reversed(closers))


def _documents(text: str) -> Iterator[Any]:
    """JSON documents where they begin, and between them what may be YAML."""
    decoder = json.JSONDecoder()
    position, longest, failures = 0, LARGEST, 0
    while failures < FAILURES_MOST and (start := _JSON_START.search(text, position)) is not None:
        yield from _yaml_documents(text[position : start.start()])
        position = start.end()
        first = start.start() + len(start[0]) - len(start[0].lstrip(" \t"))
        try:
            document, position = decoder.raw_decode(text, first)
        except (ValueError, RecursionError):
            # It may be a document that was cut: then whatever comes behind the cut belongs to it.
            document = _loaded(repaired(text[first : first + longest]))
            position = len(text) if document else position
            longest, failures = SMALL, failures + 1
        yield document
    yield from _yaml_documents(text[position:])


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _yaml_documents(text: str) -> Iterator[Any]:
    if not _YAML_START.search(text):
        return
    for document in re.split(r"^---.*$", text, flags=re.MULTILINE):
        start = _YAML_START.search(document)
        if start is not None:
            yield _Yaml(document[start.start() :]).value()


def _taken_apart(document: Any, depth: int) -> list[Mapping[str, Any]]:
    if isinstance(document, list):
        return [each for item in document if depth < 4 for each in _taken_apart(item, depth + 1)]
    if not isinstance(document, Mapping):
        return []
    if isinstance(document.get("items"), list):
        return _taken_apart(document["items"], depth + 1)
    return [document] if document.keys() & {"kind", "metadata", "status", "involvedObject", "type"} else []


class _Yaml:
    """One document of the YAML that kubectl writes."""

    def __init__(self, text: str) -> None:
        self._lines = [line.rstrip().replace("\t", "  ") for line in text.splitlines()]
        self._at = 0

    def value(self) -> Any:
        """The document, as far as it can be read."""
        self._skip_empty()
        return self._block(self._indent(), 0) if self._at < len(self._lines) else None

    def _block(self, indent: int, depth: int) -> Any:
        line = self._lines[self._at].lstrip()
        if depth < DEEPEST and line.startswith("- "):
            return self._sequence(indent, depth)
        if depth < DEEPEST and line == "-":
            return self._sequence(indent, depth)
        return self._mapping(indent, depth)

    def _mapping(self, indent: int, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._more(indent):
            match = _KEY.match(self._lines[self._at].lstrip())
            if match is None or self._lines[self._at].lstrip().startswith("- "):
                # No key: an excerpt's own mark (`[...]`), or what a line was cut from.
                if depth:
                    return found
                self._at += 1
                continue
            self._at += 1
            found[str(_scalar(match["key"]))] = self._behind(match["rest"] or "", indent, depth)
        return found

    def _sequence(self, indent: int, depth: int) -> list[Any]:
        found: list[Any] = []
        while self._more(indent) and self._lines[self._at].lstrip().startswith("-"):
            line = self._lines[self._at]
            inner = line[indent + 1 :]
            if not inner.strip():
                self._at += 1
                found.append(self._nested(indent + 1, depth))
            elif _KEY.match(inner.lstrip()) and not inner.lstrip().startswith(("'", '"')):
                # The item's first key stands behind its dash, the others below it.
                self._lines[self._at] = line[:indent] + " " + inner
                found.append(self._block(self._indent(), depth + 1))
            else:
                self._at += 1
                found.append(self._behind(inner.strip(), indent, depth))
        return found

    def _behind(self, rest: str, indent: int, depth: int) -> Any:
        """What stands behind a colon or a dash: a scalar, perhaps on several lines, or a block below."""
        if not rest:
            return self._nested(indent, depth)
        if _BLOCK.match(rest):
            return "\n".join(self._continued(indent))
        if rest[0] in "'\"" and not _closed(rest):
            rest = " ".join((rest, *self._until_closed(indent, rest[0])))
        elif rest[0] not in "'\"[{":
            rest = " ".join((rest, *self._continued(indent)))
        return _scalar(rest)

    def _nested(self, indent: int, depth: int) -> Any:
        self._skip_empty()
        if self._at >= len(self._lines) or depth >= DEEPEST:
            return None
        below = self._indent()
        # A list may stand as deep as its key.
        if below > indent or (below == indent and self._lines[self._at].lstrip().startswith("- ")):
            return self._block(below, depth + 1)
        return None

    def _continued(self, indent: int) -> list[str]:
        """Lines deeper than the key, which belong to its scalar."""
        found = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.strip() and len(line) - len(line.lstrip()) <= indent:
                break
            found.append(line.strip())
            self._at += 1
        return found

    def _until_closed(self, indent: int, quote: str) -> list[str]:
        found: list[str] = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.strip() and len(line) - len(line.lstrip()) < indent:
                break
            found.append(line.strip())
            self._at += 1
            if _closed(quote + line.strip()):
                break
        return found

    def _more(self, indent: int) -> bool:
        self._skip_empty()
        return self._at < len(self._lines) and self._indent() == indent

    def _indent(self) -> int:
        line = self._lines[self._at]
        return len(line) - len(line.lstrip())

    def _skip_empty(self) -> None:
        while self._at < len(self._lines) and not self._lines[self._at].strip():
            self._at += 1


def _closed(text: str) -> bool:
    """Whether a quoted scalar ends where the text does."""
    body = text[1:].replace("''", "") if text[0] == "'" else re.sub(r"\\.", "", text[1:])
    return body.rstrip().endswith(text[0])


def _scalar(text: str) -> Any:
    text = text.strip()
    if text[:1] == '"':
        try:
            return json.loads(text if text.endswith('"') and len(text) > 1 else text + '"')
        except ValueError:
            return text.strip('"')
    if text[:1] == "'":
        return text.strip("'").replace("''", "'")
    if text in ("null", "~", ""):
        return None
    if text in ("true", "false"):
        return text == "true"
    if text == "[]":
        return []
    if text == "{}":
        return {}
    return int(text) if _NUMBER.fullmatch(text) else text
