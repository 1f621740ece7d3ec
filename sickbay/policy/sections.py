"""Reads sections of a policy file by the models themselves: which keys there are and what each may hold.

Called by `sickbay.policy.file`. A section says only what differs; what it leaves out comes from the section it is laid
over. The models of `sickbay.policy.model` are the only list of keys, so that a new field can be written in a file the
moment it exists. Every slip is collected, never only the first.
"""

import re
from datetime import timedelta
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from sickbay import catalogue
from sickbay.model import Frozen
from sickbay.policy.durations import DurationError, parse_duration
from sickbay.policy.model import FaultPolicy
from sickbay.policy.problems import Problem, nearest
from sickbay.policy.yaml_reading import entries, is_empty, joined, line_of, scalar

Overrides = dict[str, Any]
"""Validated values by field name, nested as the models are. Lives between the file and the models, and no further."""

Policied = TypeVar("Policied", bound=Frozen)

MAY_BE_ZERO: Final = ("tolerance", "recovery_soak", "soak", "dead_kubelet_grace")
"""Durations where none means at once. Every other one is a deadline or an interval, which must leave some time."""
SET_BY_THE_FILE: Final = ("version", "digest", "pool")
"""Fields of an incident's policy that are no keys of a section."""
AT_THE_TOP: Final = ("version", "faults", "pools", "containment")
"""Sections of the file, where somebody wrote one inside of another."""

_ANY_XID: Final = re.compile(r"s?xid-[0-9]{1,5}")


class SectionReader:
    """Reads sections of one file, and keeps what is wrong and where everything stands."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.lines: dict[str, int] = {}
        """Line of every path that the file sets."""

    def problem(self, node: Node, path: str, text: str) -> None:
        """Note that something is wrong at a node."""
        line = self.lines.get(path) if is_empty(node) else None  # nothing stands on the line of its key
        self.problems.append(Problem(line=line or line_of(node), path=path, text=text))

    def mapping(self, node: Node, path: str, keys: str) -> list[tuple[str, Node, Node]]:
        """The entries of a node that must be a mapping of `keys`; none, and a problem, if it is not."""
        if isinstance(node, MappingNode):
            found = list(entries(node, path, self.problems))
            self.lines.update({joined(path, key): line_of(key_node) for key, key_node, _ in found})
            return found
        wrong = "is empty; give it content or delete the line" if is_empty(node) else f"must be a mapping of {keys}"
        self.problem(node, path, wrong)
        return []

    def section(self, node: Node, path: str, model: type[Frozen], *, without: tuple[str, ...] = ()) -> Overrides:
        """What a section says of the fields of `model`, each checked by itself."""
        fields = {name: field for name, field in model.model_fields.items() if name not in without}
        found: Overrides = {}
        for key, key_node, value in self.mapping(node, path, ", ".join(fields)):
            if key not in fields:
                cure = "write it at the top of the file" if key in AT_THE_TOP else nearest(key, list(fields))
                self.problem(key_node, joined(path, key), f"is not a key here; {cure}")
                continue
            kind = fields[key].annotation
            if isinstance(kind, type) and issubclass(kind, Frozen):
                found[key] = self.section(value, joined(path, key), kind)
            elif FaultPolicy in get_args(kind):
                found[key] = self.faults(value, joined(path, key))
            elif get_origin(kind) is tuple:
                self._list(value, joined(path, key), fields[key], found, key)
            else:
                self._leaf(value, joined(path, key), key, fields[key], found)
        return found

    def faults(self, node: Node, path: str) -> tuple[FaultPolicy, ...]:
        """Rules for single faults by code. A code that nobody reports is a problem; an Xid of any number is none."""
        rules = []
        for code, key_node, value in self.mapping(node, path, "fault codes, e.g. xid-79"):
            if not (catalogue.lookup(code).known or _ANY_XID.fullmatch(code)):
                cure = nearest(code, catalogue.codes(), otherwise="`sickbay diagnose` prints the codes of a log")
                self.problem(key_node, joined(path, code), f"is not a fault code; {cure}")
                continue
            said = self.section(value, joined(path, code), FaultPolicy, without=("code",))
            rules.append(FaultPolicy(code=code, **said))
        return tuple(rules)

    def _list(self, node: Node, path: str, field: FieldInfo, found: Overrides, key: str) -> None:
        """A list of words, which replaces the one of the section below as a whole; an empty one is meant so."""
        if not isinstance(node, SequenceNode):
            wrong = "is empty; write [] for none, or delete the line" if is_empty(node) else "must be a list"
            self.problem(node, path, wrong)
            return
        words = [(each, scalar(each)) for each in node.value]
        kind = TypeAdapter(get_args(field.annotation)[0])
        for each, text in words:
            try:
                kind.validate_python(text)
            except ValidationError as error:
                self.problem(each, path, "holds what is no word" if text is None else _in_words(text, error))
        found[key] = tuple(text for _, text in words if text is not None)

    def _leaf(self, node: Node, path: str, key: str, field: FieldInfo, found: Overrides) -> None:
        text = scalar(node)
        if text is None:
            wrong = "is empty; give it a value or delete the line" if is_empty(node) else "must be one value"
            self.problem(node, path, wrong)
            return
        try:
            found[key] = _value(text, key, field)
        except ValidationError as error:
            self.problem(node, path, _in_words(text, error))
        except DurationError as error:
            self.problem(node, path, str(error))


def laid_over(base: Policied, overrides: Overrides) -> Policied:
    """A model with the fields that a section gave in place of its own; nested models are laid over in turn."""
    update: Overrides = {}
    for name, value in overrides.items():
        current = getattr(base, name)
        if name == "faults":
            update[name] = _faults_over(current, value)
        elif isinstance(value, dict):
            update[name] = laid_over(current, value)
        else:
            update[name] = value
    return base.model_copy(update=update)


def _faults_over(base: tuple[FaultPolicy, ...], over: tuple[FaultPolicy, ...]) -> tuple[FaultPolicy, ...]:
    """Rules by code; a later rule changes of an earlier one what it sets."""
    rules = {rule.code: rule for rule in base}
    for rule in over:
        earlier = rules.get(rule.code, FaultPolicy(code=rule.code))
        rules[rule.code] = earlier.model_copy(update={name: getattr(rule, name) for name in rule.model_fields_set})
    return tuple(rules.values())


def _value(text: str, key: str, field: FieldInfo) -> object:
    """The value of one field. Raises DurationError or pydantic's ValidationError."""
    if field.annotation is timedelta or timedelta in get_args(field.annotation):
        duration = parse_duration(text)
        if not duration and key not in MAY_BE_ZERO:
            raise DurationError("must leave some time; write at least 1s")
        return duration
    kind: Any = Annotated[(field.annotation, field)]
    return TypeAdapter(kind).validate_python(text)


def _in_words(text: str, error: ValidationError) -> str:
    if text.endswith("%"):
        return f"'{text}' is not a number; write {text.removesuffix('%').strip()} without the sign"
    message = error.errors()[0]["msg"].removeprefix("Value error, ")
    return f"'{text}' {message.replace('Input should', 'must', 1).replace('String should', 'must', 1)}"
