"""Lists: selectors, pages by limit and continue, and the consistency that resourceVersion asks for.

Called by the server for GET on a collection. All pages of one list show the store as it was at the first page; once
that moment is compacted, the next page is refused with 410 and the client lists anew.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass

from simulator.kube import errors
from simulator.kube.requests import ListOptions, Target
from simulator.kube.resources import Object
from simulator.kube.selectors import Matcher, field_matcher, label_matcher
from simulator.kube.storage import Store

_TYPE = ("kind", "apiVersion")


@dataclass(frozen=True)
class _Page:
    """Where the next page starts, and at which revision."""

    revision: int
    after: tuple[str, str]

    def token(self) -> str:
        return base64.urlsafe_b64encode(json.dumps([self.revision, *self.after]).encode()).decode()

    @classmethod
    def parse(cls, token: str) -> "_Page":
        try:
            revision, namespace, name = json.loads(base64.urlsafe_b64decode(token))
            return cls(int(revision), (str(namespace), str(name)))
        except (binascii.Error, ValueError, TypeError) as problem:
            raise errors.bad_request(f"continue key is not valid: {problem}") from problem


def selection(target: Target, options: ListOptions) -> Matcher:
    """Whether an object belongs to this list or watch. Raises `ApiError` 400 for a malformed selector."""
    by_label = label_matcher(options.label_selector)
    by_field = field_matcher(target.resource, options.field_selector)

    def matches(item: Object) -> bool:
        metadata = item["metadata"]
        inside = not target.namespace or metadata.get("namespace") == target.namespace
        named = not target.name or metadata["name"] == target.name
        return inside and named and by_label(item) and by_field(item)

    return matches


def list_objects(store: Store, target: Target, options: ListOptions) -> Object:
    """One page. Raises `ApiError` 400 for bad options, 410 for an expired page, 504 for a version of the future."""
    matches = selection(target, options)
    if options.continue_token:
        page = _Page.parse(options.continue_token)
        revision, start = page.revision, page.after
    else:
        revision, start = _revision(store, options), ("", "")
    found = [item for item in store.snapshot(target.resource, revision) if matches(item) and _order(item) > start]
    shown = found[: options.limit] if options.limit else found
    metadata: Object = {"resourceVersion": str(revision)}
    if len(shown) < len(found):
        metadata["continue"] = _Page(revision, _order(shown[-1])).token()
        if not options.label_selector and not options.field_selector:
            metadata["remainingItemCount"] = len(found) - len(shown)
    return as_list(target, shown, metadata)


def as_list(target: Target, items: Sequence[Object], metadata: Object) -> Object:
    """A list object. Items of built-in kinds carry no kind of their own, those of custom kinds do."""
    resource = target.resource
    shown = items if resource.custom else [{k: v for k, v in item.items() if k not in _TYPE} for item in items]
    return {
        "kind": f"{resource.kind}List",
        "apiVersion": resource.api_version,
        "metadata": metadata,
        "items": list(shown),
    }


def _order(item: Object) -> tuple[str, str]:
    return (item["metadata"].get("namespace", ""), item["metadata"]["name"])


def _revision(store: Store, options: ListOptions) -> int:
    asked = int(options.resource_version or 0)
    if asked > store.revision:
        details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
        message = f"Too large resource version: {asked}, current: {store.revision}"
        raise errors.ApiError(504, "Timeout", message, details=details, retry_after=1)
    return asked if options.resource_version_match == "Exact" else store.revision
