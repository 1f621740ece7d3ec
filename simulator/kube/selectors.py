"""Label and field selectors: which objects a list, a watch or a budget means.

Used by lists, watches, deletions of collections and evictions. Raises `ApiError` 400 on a selector that the real server
would not take, so that a typo in a client never selects everything.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from simulator.kube import errors
from simulator.kube.resources import Object, Resource

_FIELDS_OF_ALL = ("metadata.name", "metadata.namespace")
_FIELDS: dict[str, tuple[str, ...]] = {
    "pods": ("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "status.phase", "status.podIP"),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "jobs": ("status.successful",),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
}
"""Selectable fields by plural, as each kind registers them (`AddFieldLabelConversionFunc`)."""
_NO_VALUE_READS_FALSE = "spec.unschedulable"

_REQUIREMENT = re.compile(
    r"\s*(?:(?P<absent>!)\s*(?P<absent_key>[\w./-]+)"
    r"|(?P<key>[\w./-]+)\s*(?:(?P<set>in|notin)\s*\((?P<values>[^()]*)\)|(?P<operator>==|=|!=)\s*(?P<value>[\w./-]*))?)"
    r"\s*(?:,|$)"
)

Matcher = Callable[[Object], bool]


@dataclass(frozen=True)
class Requirement:
    """One condition on one label. `negated` also holds where the label is missing."""

    key: str
    values: frozenset[str] | None
    """None asks only whether the label exists."""
    negated: bool

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels meet it."""
        found = self.key in labels and (self.values is None or labels[self.key] in self.values)
        return found != self.negated


def label_matcher(text: str) -> Matcher:
    """Objects whose labels meet every requirement, e.g. `app=trainer,!done,zone in (a,b)`."""
    requirements = _parse_labels(text)
    return lambda item: _all_hold(requirements, item["metadata"].get("labels") or {})


def selector_matches(selector: Object, labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector object, as budgets and jobs hold it, selects these labels. An empty one selects all."""
    equal = [Requirement(key, frozenset({value}), False) for key, value in selector.get("matchLabels", {}).items()]
    return _all_hold([*equal, *(_expression(entry) for entry in selector.get("matchExpressions", ()))], labels)


def field_matcher(resource: Resource, text: str) -> Matcher:
    """Objects whose fields have these values, e.g. `spec.nodeName=n1,status.phase!=Failed`."""
    selectable = (*_FIELDS_OF_ALL, *_FIELDS.get(resource.plural, ()))
    wanted: list[tuple[str, str, bool]] = []
    for term in filter(None, (part.strip() for part in text.split(","))):
        parsed = re.fullmatch(r"([\w.]+)\s*(!=|==|=)\s*(.*)", term)
        if not parsed:
            raise errors.bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        field, operator, value = parsed.groups()
        if field not in selectable:
            raise errors.bad_request(f"field label not supported: {field}")
        wanted.append((field, value, operator == "!="))
    return lambda item: all((_field(item, field) == value) != negated for field, value, negated in wanted)


def _all_hold(requirements: list[Requirement], labels: Mapping[str, str]) -> bool:
    return all(requirement.holds(labels) for requirement in requirements)


def _parse_labels(text: str) -> list[Requirement]:
    requirements: list[Requirement] = []
    position = 0
    while position < len(text.rstrip()):
        match = _REQUIREMENT.match(text, position)
        if not match:
            raise errors.bad_request(f"unable to parse requirement: found '{text[position:]}' in selector '{text}'")
        requirements.append(_requirement(match))
        position = match.end()
    return requirements


def _requirement(match: re.Match[str]) -> Requirement:
    if match["absent"]:
        return Requirement(match["absent_key"], None, True)
    if match["set"]:
        values = frozenset(value.strip() for value in match["values"].split(","))
        return Requirement(match["key"], values, match["set"] == "notin")
    if match["operator"]:
        return Requirement(match["key"], frozenset({match["value"]}), match["operator"] == "!=")
    return Requirement(match["key"], None, False)


def _expression(entry: Object) -> Requirement:
    operator = entry["operator"]
    values = None if operator in ("Exists", "DoesNotExist") else frozenset(entry.get("values", ()))
    return Requirement(entry["key"], values, operator in ("NotIn", "DoesNotExist"))


def _field(item: Object, path: str) -> str:
    value: object = item
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    if path == _NO_VALUE_READS_FALSE:
        return "true" if value else "false"
    if path == "source" and isinstance(value, dict):
        return str(value.get("component", ""))
    return "" if value is None else str(value)
