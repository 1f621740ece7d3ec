"""Kubernetes Events on nodes, for people who look with kubectl.

Called by `activities.nodes` and by the controller's watch. An event's name is made of what it says, so that a repeat of
one incident's word is one event.
"""

import hashlib
from datetime import datetime
from typing import Final

from kubernetes.aio.client import ApiClient

from activities.kube import ConflictError, call
from activities.node_models import NodeEvent, Recorded
from sickbay.kube_objects import Event
from sickbay.names import FIELD_MANAGER

_EVENTS: Final = "/api/v1/namespaces/default/events"
"""Events on objects without a namespace live in `default`, where kubectl looks for them."""
MESSAGE_LIMIT: Final = 1024
"""Characters of a message that the API server takes."""
_NAME_LIMIT: Final = 230
"""Characters of the node's name in an event's name, which holds 253."""


async def record(api: ApiClient, event: NodeEvent, now: datetime) -> Recorded:
    """Write an event unless it is there. Raises FinalError or PassingError."""
    said = "\0".join((event.node.uid, event.incident_id, event.reason, event.message))
    name = f"{event.node.name[:_NAME_LIMIT]}.{hashlib.sha256(said.encode()).hexdigest()[:16]}"
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    node = {"apiVersion": "v1", "kind": "Node", "name": event.node.name, "uid": event.node.uid}
    try:
        await call(
            api,
            "POST",
            _EVENTS,
            Event,
            body={
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": name, "namespace": "default"},
                "involvedObject": dict(node),
                "reason": event.reason,
                "message": event.message[:MESSAGE_LIMIT],
                "type": "Warning" if event.warning else "Normal",
                "source": {"component": FIELD_MANAGER},
                "firstTimestamp": stamp,
                "lastTimestamp": stamp,
                "count": 1,
            },
        )
    except ConflictError:
        return Recorded(name=name)
    return Recorded(name=name)
