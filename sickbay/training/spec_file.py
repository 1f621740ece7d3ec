"""A training job's file: YAML text in, one checked `TrainingSpec` out.

Called by `sickbay train submit`, which reads the files. Every problem names file, line, path and cure. The models of
`sickbay.training.job` are the only list of keys. `manifest` is the object itself, or `{file: NAME}` of one beside it.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, get_args

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from sickbay.model import Frozen
from sickbay.policy.durations import DurationError, parse_duration
from sickbay.policy.problems import nearest
from sickbay.training.job import TrainingSpec

LARGEST_FILE: Final = 1_000_000
"""Characters; a job is written by people, and goes into a workflow's history whole."""

ReadFile = Callable[[str], str]
"""The text of a file that stands beside the job's; raises what tells a person that it cannot be read."""


class SpecError(Exception):
    """The file cannot be used; one line for each thing that is wrong, with place and cure."""


def read_spec(text: str, source: str, read_file: ReadFile) -> TrainingSpec:
    """The job in some YAML text; `source` names it in errors. Raises SpecError, and what `read_file` raises."""
    content = _mapping(text, source)
    problems: list[str] = []
    _check_keys(content, TrainingSpec, (), content, source, problems)
    values = _with_durations(content, TrainingSpec, (), content, source, problems)
    if problems:
        raise SpecError("\n".join(problems))
    manifest = values.get("manifest")
    if isinstance(manifest, Mapping) and set(manifest) == {"file"} and isinstance(manifest["file"], str):
        values["manifest"] = _plain(_mapping(read_file(manifest["file"]), f"{source}: manifest {manifest['file']}"))
    try:
        return TrainingSpec.model_validate(values)
    except ValidationError as error:
        raise SpecError("\n".join(_told(each, content, source) for each in error.errors())) from error


def _mapping(text: str, source: str) -> Any:
    if len(text) > LARGEST_FILE:
        raise SpecError(f"{source}: {len(text)} characters, and a job has at most {LARGEST_FILE}; is it another file?")
    try:
        content = YAML(typ="rt").load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise SpecError(f"{source}:{line}: not valid YAML: {error.problem or error.context}") from error
    except (YAMLError, ValueError, RecursionError) as error:
        raise SpecError(f"{source}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, Mapping):
        raise SpecError(f"{source}: a job is one mapping with name, manifest, checkpoints and target")
    return content


def _check_keys(
    content: Any, model: type[Frozen], path: tuple[str, ...], root: Any, source: str, problems: list[str]
) -> None:
    """Collect every key that no model knows: the models themselves ignore it, and a person would never hear of it."""
    known = list(model.model_fields)
    for key, value in content.items():
        place = (*path, str(key))
        if key not in known:
            problems.append(f"{_place(root, place, source)}: is not a key here; {nearest(str(key), known)}")
        elif (part := _model_in(model, key)) is not None and isinstance(value, Mapping):
            _check_keys(value, part, place, root, source, problems)


def _with_durations(
    content: Any, model: type[Frozen], path: tuple[str, ...], root: Any, source: str, problems: list[str]
) -> dict[str, Any]:
    """The content as plain values, `10m` and the like as durations where the model wants one."""
    values: dict[str, Any] = {}
    for key, value in content.items():
        place = (*path, str(key))
        part = _model_in(model, key)
        if part is not None and isinstance(value, Mapping):
            values[key] = _with_durations(value, part, place, root, source, problems)
        elif key in model.model_fields and _is_duration(model, key) and value is not None:
            try:
                values[key] = parse_duration(str(value))
            except DurationError as error:
                problems.append(f"{_place(root, place, source)}: {error}")
        else:
            values[key] = _plain(value)
    return values


def _model_in(model: type[Frozen], key: str) -> type[Frozen] | None:
    field = model.model_fields.get(key)
    if field is None:
        return None
    kinds = (field.annotation, *get_args(field.annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Frozen)), None)


def _is_duration(model: type[Frozen], key: str) -> bool:
    annotation = model.model_fields[key].annotation
    return timedelta in (annotation, *get_args(annotation))


def _plain(value: Any) -> Any:
    """Without the parser's own types, which remember lines and comments."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return str(value)


def _told(error: Any, content: Any, source: str) -> str:
    place = tuple(str(step) for step in error["loc"])
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "missing":
        message = "is missing; see deploy/training for an example"
    return f"{_place(content, place, source)}: {message[:1].lower()}{message[1:]}"


def _place(content: Any, place: tuple[str, ...], source: str) -> str:
    """`file:line: path`, the line of the deepest part that is in the file."""
    line, here = 0, content
    for step in place:
        try:
            line = here.lc.key(step)[0] + 1
            here = here[step]
        except (AttributeError, KeyError, TypeError, IndexError):
            break
    where = f"{source}:{line}" if line else source
    return f"{where}: {'.'.join(place)}" if place else where
