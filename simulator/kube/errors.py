"""Refusals of the API server, worded as the real one words them (apimachinery `api/errors`).

Raised by every part of the server and turned into a `Status` object by `simulator.kube.server` alone. Clients decide by
code, reason and causes, so those must be right; messages are for people.
"""

from typing import Any

from simulator.kube.resources import Resource


class ApiError(Exception):
    """One refusal, with everything that its `Status` object says."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        retry_after: int | None = None,
    ) -> None:
        """`retry_after` is in seconds and goes both into the details and, unless it is 0, into the header."""
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = dict(details or {})
        self.retry_after = retry_after
        if retry_after:
            self.details["retryAfterSeconds"] = retry_after

    def status(self) -> dict[str, Any]:
        """The `Status` object that a client reads."""
        body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        body["message"] = self.message
        if self.reason:
            body["reason"] = self.reason
        if self.details:
            body["details"] = self.details
        return {**body, "code": self.code}


def _named(resource: Resource, name: str) -> dict[str, Any]:
    details = {"name": name, "kind": resource.plural}
    return {**details, "group": resource.group} if resource.group else details


def not_found(resource: Resource, name: str) -> ApiError:
    """No object of this name."""
    message = f'{resource.qualified} "{name}" not found'
    return ApiError(404, "NotFound", message, details=_named(resource, name))


def no_such_path() -> ApiError:
    """No resource is served at this path."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: Resource, name: str) -> ApiError:
    """The name is taken."""
    message = f'{resource.qualified} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, details=_named(resource, name))


def conflict(resource: Resource, name: str, why: str) -> ApiError:
    """Somebody changed or replaced the object first."""
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    return ApiError(409, "Conflict", message, details=_named(resource, name))


def stale(resource: Resource, name: str) -> ApiError:
    """The resourceVersion sent is not the current one."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def invalid(resource: Resource, name: str, field: str, why: str) -> ApiError:
    """The object breaks a rule of its kind; `why` is worded like `Required value: must be set`."""
    message = f'{resource.kind}{"." + resource.group if resource.group else ""} "{name}" is invalid: {field}: {why}'
    details = {"name": name, "kind": resource.kind, "causes": [{"message": why, "field": field}]}
    return ApiError(422, "Invalid", message, details=details)


def bad_request(message: str) -> ApiError:
    """The request cannot be understood."""
    return ApiError(400, "BadRequest", message)


def forbidden(resource: Resource, name: str, why: str, *, cause: str | None = None) -> ApiError:
    """Understood, and refused."""
    details = _named(resource, name)
    if cause:
        details["causes"] = [{"reason": cause, "message": why}]
    return ApiError(403, "Forbidden", f'{resource.qualified} "{name}" is forbidden: {why}', details=details)


def expired(message: str) -> ApiError:
    """The history that the request needs is gone: list anew."""
    return ApiError(410, "Expired", message)


def unsupported_media_type(supported: str) -> ApiError:
    """The patch format is not served for this resource."""
    message = f"the body of the request was in an unknown format - accepted media types include: {supported}"
    return ApiError(415, "UnsupportedMediaType", message)


def method_not_allowed() -> ApiError:
    """The verb is not served here."""
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
