"""YAML as marked nodes: text to mappings and scalars that know their line, with every slip as a `Problem`.

Called by `sickbay.policy.sections`. The nodes are read, not the loaded values, because only a node knows its line, and
because a loader silently resolves what a person did not mean (`1.10` as a version, a key that stands twice).
"""

from collections.abc import Iterator
from typing import Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode

from sickbay.policy.problems import PolicyError, Problem

LARGEST_FILE: Final = 1_000_000
"""Bytes; a policy is read by people."""

_NULL: Final = "tag:yaml.org,2002:null"


def compose(data: bytes, file: str) -> MappingNode:
    """The top mapping of a policy file. Raises PolicyError for what is not one YAML mapping in UTF-8."""
    try:
        text = _text(data, file)
        root = YAML(typ="rt").compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(part for part in (error.context, error.problem) if part)
        raise _whole(file, f"not valid YAML: {_one_line(what)}", mark.line + 1 if mark else 0) from error
    except (YAMLError, ValueError, RecursionError) as error:
        raise _whole(file, f"not valid YAML: {_one_line(str(error))}") from error
    if root is None:
        raise _whole(file, "the file is empty; start with `version: <a word of yours>`")
    if not isinstance(root, MappingNode):
        raise _whole(file, "the file must be a mapping; start with `version: <a word of yours>`", line_of(root))
    return root


def line_of(node: Node) -> int:
    """The line on which a node begins, from 1."""
    return int(node.start_mark.line) + 1


def scalar(node: Node) -> str | None:
    """The text of a scalar as it is written; None for a mapping, a list or an empty value."""
    if isinstance(node, ScalarNode) and node.tag != _NULL:
        return str(node.value)
    return None


def is_empty(node: Node) -> bool:
    """Whether nothing stands behind a key."""
    return isinstance(node, ScalarNode) and node.tag == _NULL


def entries(node: MappingNode, path: str, problems: list[Problem]) -> Iterator[tuple[str, Node, Node]]:
    """Key, key node and value node of each entry; a key that stands twice or is no text is a problem."""
    seen: dict[str, int] = {}
    for key_node, value_node in node.value:
        key, line = scalar(key_node), line_of(key_node)
        if key is None:
            problems.append(Problem(line=line, path=path, text="a key must be one word; quote it if it is meant so"))
        elif key in seen:
            text = f"the key stands twice, first on line {seen[key]}; keep one of them"
            problems.append(Problem(line=line, path=joined(path, key), text=text))
        else:
            seen[key] = line
            yield key, key_node, value_node


def joined(path: str, key: str) -> str:
    """A path one step deeper."""
    return f"{path}.{key}" if path else key


def _text(data: bytes, file: str) -> str:
    if len(data) > LARGEST_FILE:
        raise _whole(file, f"the file has {len(data)} bytes, and a policy at most {LARGEST_FILE}; is it another file?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _whole(file, "not UTF-8 text; save the file as UTF-8", line) from error


def _whole(file: str, text: str, line: int = 0) -> PolicyError:
    return PolicyError(file, [Problem(line=line, path="", text=text)])


def _one_line(text: str) -> str:
    return " ".join(text.split())
