"""Reading, creating, updating and patching objects of any served kind.

Called by `simulator.kube.server`; the rules of single kinds are in `defaults` and `validation`, those of deletion in
`deletion`. Every operation is synchronous, hence atomic: two clients cannot interleave inside one. It looks after
metadata the way the real registry does: status and the rest change through different paths, what the server sets cannot
be changed, an update that changes nothing writes nothing.
"""

import copy
import secrets
import string
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from simulator.kube import defaults, errors, fields, patches, validation
from simulator.kube.requests import APPLY, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Target, WriteOptions
from simulator.kube.resources import NAMESPACES, Object
from simulator.kube.storage import Key, Store

_SET_BY_SERVER = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_RANDOM_LETTERS = string.ascii_lowercase + string.digits


@dataclass(frozen=True)
class Written:
    """What a write led to."""

    item: Object
    created: bool = False


def timestamp(moment: datetime) -> str:
    """A moment as metadata holds it: RFC 3339 in UTC, whole seconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class Operations:
    """Reads and writes on one store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def read(self, target: Target) -> Object:
        """The object. Raises `ApiError` 404."""
        item = self.store.get(target.key)
        if item is None:
            raise errors.not_found(target.resource, target.name)
        return item

    def create(self, target: Target, body: Object, options: WriteOptions, operation: str = "Update") -> Written:
        """A new object in the target's collection. Raises `ApiError` 403, 404, 409 or 422."""
        resource = target.resource
        item = defaults.settle(resource, body)
        metadata = item["metadata"]
        self._place(target, metadata)
        validation.check(resource, item)
        key = Key(resource, target.namespace, metadata["name"])
        self._require_namespace(key)
        if self.store.get(key) is not None:
            raise errors.already_exists(resource, key.name)
        for field in (*_SET_BY_SERVER, "managedFields"):
            metadata.pop(field, None)
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = timestamp(datetime.now(UTC))
        if resource.counts_generation:
            metadata["generation"] = 1
        defaults.complete(resource, item)
        fields.record_update(None, item, _writer(target, options, operation))
        return Written(item if options.dry_run else self.store.put(key, item), created=True)

    def replace(self, target: Target, body: Object, options: WriteOptions) -> Written:
        """The object as the body has it. Raises `ApiError` 400, 404, 409 or 422."""
        before = self.read(target)
        wanted = defaults.settle(target.resource, body)
        metadata = wanted["metadata"]
        if metadata.get("name", target.name) != target.name:
            message = f"the name of the object ({metadata['name']}) does not match the name on the URL ({target.name})"
            raise errors.bad_request(message)
        if not metadata.get("resourceVersion") and not target.resource.unconditional_update:
            why = "Invalid value: 0: must be specified for an update"
            raise errors.invalid(target.resource, target.name, "metadata.resourceVersion", why)
        return Written(self.update(target, before, wanted, options))

    def patch(self, target: Target, content_type: str, body: Any, options: WriteOptions) -> Written:
        """The object changed by a patch; an apply creates it if needed. Raises `ApiError` 400, 404, 409, 415, 422."""
        if content_type != JSON_PATCH and not isinstance(body, dict):
            raise errors.bad_request("error decoding patch: the body is not a JSON object")
        if content_type == APPLY:
            return self._apply(target, body, options)
        before = self.read(target)
        if content_type == JSON_PATCH:
            wanted = patches.json_patch(before, body)
        elif content_type == MERGE_PATCH:
            wanted = patches.merge(before, body)
        elif content_type == STRATEGIC_PATCH and not target.resource.custom:
            wanted = patches.strategic(before, body)
        else:
            supported = [JSON_PATCH, MERGE_PATCH, *([] if target.resource.custom else [STRATEGIC_PATCH]), APPLY]
            raise errors.unsupported_media_type(", ".join(supported))
        return Written(self.update(target, before, wanted, options))

    def update(self, target: Target, before: Object, wanted: Object, options: WriteOptions) -> Object:
        """Store `wanted` in the place of `before`, through the target's subresource."""
        after = defaults.settle(target.resource, wanted)
        _require_same(target, before, after)
        _keep_other_half(target, before, after)
        managed = before["metadata"].get("managedFields", [])
        _keep_metadata(after, before, managed)
        if _same(before, after):
            return before
        fields.record_update(before, after, _writer(target, options, "Update"))
        return self._commit(target, before, after, options)

    def _apply(self, target: Target, body: Object, options: WriteOptions) -> Written:
        if not options.field_manager:
            message = (
                'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
            )
            raise errors.ApiError(422, "Invalid", message)
        wanted = defaults.settle(target.resource, body)
        wanted["metadata"]["name"] = target.name
        before = self.store.get(target.key)
        if before is None and not target.subresource:
            return self.create(target, wanted, options, "Apply")
        if before is None:
            raise errors.not_found(target.resource, target.name)
        _require_same(target, before, wanted)
        writer = _writer(target, options, "Apply")
        after = fields.apply(before, _appliable(target, wanted), writer, force=options.force)
        managed = after["metadata"]["managedFields"]
        after = defaults.settle(target.resource, after)
        _keep_other_half(target, before, after)
        _keep_metadata(after, before, managed)
        if _same(before, after) and before["metadata"].get("managedFields") == managed:
            return Written(before)
        return Written(self._commit(target, before, after, options))

    def _commit(self, target: Target, before: Object, after: Object, options: WriteOptions) -> Object:
        resource = target.resource
        validation.check(resource, after)
        if not target.subresource:
            validation.check_change(resource, before, after)
        if resource.counts_generation and _body(before) != _body(after):
            after["metadata"]["generation"] = before["metadata"].get("generation", 0) + 1
        if options.dry_run:
            return after
        if _may_go(after):
            return self.store.remove(target.key, after)
        return self.store.put(target.key, after)

    def _place(self, target: Target, metadata: Object) -> None:
        if target.namespace:
            if metadata.setdefault("namespace", target.namespace) != target.namespace:
                message = "the namespace of the provided object does not match the namespace sent on the request"
                raise errors.bad_request(message)
        else:
            metadata.pop("namespace", None)
        if not metadata.get("name"):
            prefix = metadata.get("generateName")
            if not prefix:
                raise errors.invalid(
                    target.resource, "", "metadata.name", "Required value: name or generateName is required"
                )
            metadata["name"] = prefix + "".join(secrets.choice(_RANDOM_LETTERS) for _ in range(5))

    def _require_namespace(self, key: Key) -> None:
        if not key.namespace:
            return
        namespace = self.store.get(Key(NAMESPACES, "", key.namespace))
        if namespace is None:
            raise errors.not_found(NAMESPACES, key.namespace)
        if "deletionTimestamp" in namespace["metadata"]:
            why = f"unable to create new content in namespace {key.namespace} because it is being terminated"
            raise errors.forbidden(key.resource, key.name, why, cause="NamespaceTerminating")


def _writer(target: Target, options: WriteOptions, operation: str) -> fields.Writer:
    return fields.Writer(options.manager, operation, target.resource.api_version, target.subresource, datetime.now(UTC))


def _require_same(target: Target, before: Object, after: Object) -> None:
    """Optimistic concurrency: what the client read must be what is stored."""
    current, sent = before["metadata"], after["metadata"]
    if sent.get("uid", current["uid"]) != current["uid"]:
        why = f"Precondition failed: UID in precondition: {sent['uid']}, UID in object meta: {current['uid']}"
        raise errors.conflict(target.resource, target.name, why)
    if sent.get("resourceVersion") and sent["resourceVersion"] != current["resourceVersion"]:
        raise errors.stale(target.resource, target.name)


def _keep_other_half(target: Target, before: Object, after: Object) -> None:
    """Status changes only through /status, and all else only beside it."""
    if target.subresource == "status":
        kept = [field for field in {**before, **after} if field not in ("status", "metadata")]
        if target.resource.custom:
            after["metadata"] = copy.deepcopy(before["metadata"])
    else:
        kept = ["status"] if target.resource.has_status else []
    for field in kept:
        if field in before:
            after[field] = copy.deepcopy(before[field])
        else:
            after.pop(field, None)


def _keep_metadata(after: Object, before: Object, managed: list[Object]) -> None:
    metadata, old = after["metadata"], before["metadata"]
    for field in (*_SET_BY_SERVER, "name", "namespace", "resourceVersion", "generateName"):
        if field in old:
            metadata[field] = old[field]
        else:
            metadata.pop(field, None)
    if managed:
        metadata["managedFields"] = managed
    if "deletionTimestamp" in old and set(metadata.get("finalizers", ())) - set(old.get("finalizers", ())):
        message = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted"
        raise errors.ApiError(422, "Invalid", message)


def _same(before: Object, after: Object) -> bool:
    return _unmanaged(before) == _unmanaged(after)


def _unmanaged(item: Object) -> Object:
    return {**item, "metadata": {k: v for k, v in item["metadata"].items() if k != "managedFields"}}


def _body(item: Object) -> Object:
    return {field: value for field, value in item.items() if field not in ("metadata", "status")}


def _may_go(item: Object) -> bool:
    metadata = item["metadata"]
    waits = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    waits = waits or item.get("spec", {}).get("finalizers")  # only namespaces have these
    return "deletionTimestamp" in metadata and not waits


def _appliable(target: Target, wanted: Object) -> Object:
    """The part of an apply configuration that counts on this path: the other half is ignored, and not owned."""
    if target.subresource == "status":
        return {field: value for field, value in wanted.items() if field not in ("spec", "data")}
    return {field: value for field, value in wanted.items() if field != "status" or not target.resource.has_status}
