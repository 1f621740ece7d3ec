"""What a request asks for: the target its path names, and the options in its query and body.

Made by `simulator.kube.server` out of HTTP, and read by everything behind it, so that nothing behind knows of HTTP.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field, ValidationError

from sickbay.model import Frozen
from simulator.kube import errors
from simulator.kube.resources import NAMESPACES, Object, Resource, find
from simulator.kube.storage import Key

APPLY = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"


@dataclass(frozen=True)
class Target:
    """The collection or object that a path names."""

    resource: Resource
    namespace: str = ""
    """Empty for cluster-scoped kinds, and for lists over all namespaces."""
    name: str = ""
    """Empty for a collection."""
    subresource: str = ""

    @property
    def key(self) -> Key:
        """Where the object is stored."""
        return Key(self.resource, self.namespace, self.name)

    def named(self, name: str) -> "Target":
        """One object of this collection."""
        return Target(self.resource, self.namespace, name, self.subresource)


def parse_path(path: str) -> Target:
    """The target of `/api/v1/...` or `/apis/GROUP/VERSION/...`. Raises `ApiError` 404 if nothing is served there."""
    match path.strip("/").split("/"):
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            raise errors.no_such_path()
    match rest:
        case ["namespaces", namespace, plural, *below] if plural not in NAMESPACES.subresources:
            return _target(group, version, plural, namespace, below)
        case [plural, *below]:
            return _target(group, version, plural, "", below)
        case _:
            raise errors.no_such_path()


def _target(group: str, version: str, plural: str, namespace: str, below: Sequence[str]) -> Target:
    resource = find(group, version, plural)
    name, subresource = [*below, "", ""][:2]
    if (
        resource is None
        or len(below) > 2
        or (namespace and not resource.namespaced)
        or (name and resource.namespaced and not namespace)
        or (subresource and subresource not in resource.subresources)
    ):
        raise errors.no_such_path()
    return Target(resource, namespace, name, subresource)


class ListOptions(Frozen):
    """Query of a list or watch, as meta/v1 ListOptions."""

    label_selector: str = Field(default="", alias="labelSelector")
    field_selector: str = Field(default="", alias="fieldSelector")
    limit: int = Field(default=0, ge=0)
    continue_token: str = Field(default="", alias="continue")
    watch: bool = False
    resource_version: str = Field(default="", alias="resourceVersion", pattern=r"^\d*$")
    resource_version_match: str = Field(default="", alias="resourceVersionMatch")
    timeout_seconds: float | None = Field(default=None, alias="timeoutSeconds", ge=0)
    allow_watch_bookmarks: bool = Field(default=False, alias="allowWatchBookmarks")


class WriteOptions(Frozen):
    """Query of a create, update or patch."""

    dry_run: str = Field(default="", alias="dryRun", pattern="^(All)?$")
    field_manager: str = Field(default="", alias="fieldManager", max_length=128)
    force: bool = False
    user_agent: str = ""
    """Of the request's header: what comes before its first slash is the manager where none is named."""

    @property
    def manager(self) -> str:
        """Who writes, for managedFields."""
        return self.field_manager or self.user_agent.split("/", 1)[0][:128] or "unknown"


class Preconditions(Frozen):
    """What an object must still be for its deletion to go on."""

    uid: str | None = None
    resource_version: str | None = Field(default=None, alias="resourceVersion")


class DeleteOptions(Frozen):
    """Body of a DELETE or part of an eviction, as meta/v1 DeleteOptions."""

    grace_period_seconds: int | None = Field(default=None, alias="gracePeriodSeconds")
    preconditions: Preconditions | None = None
    propagation_policy: str | None = Field(
        default=None, alias="propagationPolicy", pattern="^(Orphan|Background|Foreground)$"
    )
    dry_run: tuple[str, ...] | None = Field(default=None, alias="dryRun")


def parse_list_options(query: Mapping[str, str]) -> ListOptions:
    """Raises `ApiError` 400 on a value that cannot be read."""
    try:
        return ListOptions.model_validate(dict(query))
    except ValidationError as problem:
        raise _unreadable("ListOptions", problem) from problem


def parse_write_options(query: Mapping[str, str], user_agent: str) -> WriteOptions:
    """Raises `ApiError` 400 on a value that cannot be read."""
    try:
        return WriteOptions.model_validate({**query, "user_agent": user_agent})
    except ValidationError as problem:
        raise _unreadable("CreateOptions", problem) from problem


def parse_delete_options(query: Mapping[str, str], body: Object) -> DeleteOptions:
    """Options of the body, or else of the query. Raises `ApiError` 400 on a value that cannot be read."""
    asked: Object = {**query, **body}
    if isinstance(asked.get("dryRun"), str):
        asked["dryRun"] = [asked["dryRun"]]
    try:
        return DeleteOptions.model_validate(asked)
    except ValidationError as problem:
        raise _unreadable("DeleteOptions", problem) from problem


def _unreadable(kind: str, problem: ValidationError) -> errors.ApiError:
    first = problem.errors()[0]
    return errors.bad_request(f"{kind}: {'.'.join(map(str, first['loc']))}: {first['msg']}")
