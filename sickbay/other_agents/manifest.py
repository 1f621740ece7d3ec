"""Reads nodes from YAML or JSON: a Node, a list of them, a status, or a bare list of conditions.

Called by `sickbay.other_agents.recorded`. Every scalar is taken as text, as it is written: a loader that guesses types
makes numbers of names and times without a zone of times.
"""

from collections.abc import Iterator
from typing import Any, Final

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from sickbay.kube_objects import Condition, Node
from sickbay.other_agents.described import DescribedNode, UnreadableError

_NULLS: Final = ("null", "~", "")
_METADATA: Final = ("name", "uid")


def read_manifest(text: str) -> tuple[DescribedNode, ...]:
    """The nodes of a manifest. Raises UnreadableError."""
    try:
        # JSON is YAML, but for tabs between its words.
        documents = list(YAML(typ="base", pure=True).load_all(text.replace("\t", "  ")))
        return tuple(_read(raw) for document in documents for raw in _nodes(document))
    except (YAMLError, ValueError, RecursionError, AttributeError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UnreadableError(f"no whole YAML or JSON: {reason or type(error).__name__}") from error


def _nodes(document: Any) -> Iterator[dict[str, Any]]:
    if isinstance(document, list):
        if any(isinstance(entry, dict) and "type" in entry for entry in document):
            yield {"status": {"conditions": document}}
        else:
            for entry in document:
                yield from _nodes(entry)
    elif isinstance(document, dict):
        items = document.get("items")
        if isinstance(items, list):
            for entry in items:
                yield from _nodes(entry)
        elif isinstance(document.get("status"), dict):
            if document.get("kind", "Node") == "Node":
                yield document
        elif {"conditions", "capacity", "allocatable"} & document.keys():
            yield {"status": document}


def _read(raw: dict[str, Any]) -> DescribedNode:
    status, metadata = _mapping(raw.get("status")), _mapping(raw.get("metadata"))
    listed = status.get("conditions")
    conditions, gaps = _conditions(listed)
    if not conditions:
        gaps = (*gaps, "the manifest shows no conditions")
    node = Node.model_validate(
        {
            "metadata": {
                **{key: metadata[key] for key in _METADATA if isinstance(metadata.get(key), str)},
                "labels": _texts(metadata.get("labels")),
                "annotations": _texts(metadata.get("annotations")),
            },
            "status": {
                "capacity": _texts(status.get("capacity")),
                "allocatable": _texts(status.get("allocatable")),
                "nodeInfo": {"bootID": _texts(status.get("nodeInfo")).get("bootID", "")},
            },
        }
    )
    return DescribedNode(
        node=node.model_copy(update={"status": node.status.model_copy(update={"conditions": conditions})}),
        shows_conditions=isinstance(listed, list),
        shows_resources="capacity" in status or "allocatable" in status,
        gaps=gaps,
    )


def _conditions(listed: Any) -> tuple[tuple[Condition, ...], tuple[str, ...]]:
    read: list[Condition] = []
    gaps = []
    for number, entry in enumerate(listed if isinstance(listed, list) else [], start=1):
        try:
            read.append(Condition.model_validate(_texts(entry)))
        except ValidationError:
            gaps.append(f"condition {number} cannot be read")
    return tuple(read), tuple(gaps)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _texts(value: Any) -> dict[str, str]:
    """The entries of a mapping that are texts and not empty."""
    return {
        key: text
        for key, text in _mapping(value).items()
        if isinstance(key, str) and isinstance(text, str) and text not in _NULLS
    }
