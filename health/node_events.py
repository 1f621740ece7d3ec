"""Kubernetes Events on our own node when a fault opens, asks for more, or is over.

Told by the publisher after each write of the conditions. One Event object stands for one fault of one boot and counts
up; a storm of different faults is cut to a few Events a minute and one that sums up the rest. That an Event cannot be
written holds up nothing, and is not tried again: the conditions and the annotation say the same.
"""

import hashlib
import logging
from collections import Counter, deque
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from pydantic import JsonValue

from health.api_server import ApiError, ApiServer
from sickbay.conditions import FaultsAnnotation
from sickbay.fault_events import FaultNews, fault_news
from sickbay.faults import Fault

_log = logging.getLogger(__name__)

COMPONENT: Final = "sickbay-node"
MOST_A_MINUTE: Final = 10
"""Events of single faults; a node with more has one trouble, not many."""

_MINUTE: Final = timedelta(minutes=1)
_EVENTS: Final = "api/v1/namespaces/default/events"
"""Events on objects without a namespace live in `default`, where kubectl looks for them."""
_MESSAGE_CHARACTERS: Final = 1024
"""What the API server takes."""
_NAME_CHARACTERS: Final = 230
"""Of the node's name in an Event's name, which holds 253."""
_COUNTED: Final = 512
"""Events whose counts are remembered."""
_CONFLICT: Final = 409


class NodeEvents:
    """The Events of one node."""

    def __init__(self, server: ApiServer, node_name: str, now: Callable[[], datetime]) -> None:
        """`server` is in use by the publisher as well."""
        self._server = server
        self._node = node_name
        self._now = now
        self._told: tuple[Fault, ...] = ()
        self._first = True
        self._counts: Counter[str] = Counter()
        self._recent: deque[datetime] = deque()
        self._rest: tuple[FaultNews, ...] = ()
        self._summed_up_at: datetime | None = None

    async def tell(self, report: FaultsAnnotation, node_uid: str) -> None:
        """Write the Events for what is new in a report."""
        news = fault_news(self._told, report.faults)
        self._told = report.faults
        free = self._free_now()
        for one in news[:free]:
            await self._write(self._name(node_uid, *one.fault.identity), one.news, one.message, one.warning, node_uid)
        self._rest += news[free:]
        if self._rest and self._may_sum_up():
            await self._sum_up(report.boot_id, node_uid)
        self._first = False

    def _free_now(self) -> int:
        """How many Events of single faults may be written now."""
        now = self._now()
        while self._recent and now - self._recent[0] >= _MINUTE:
            self._recent.popleft()
        return max(0, MOST_A_MINUTE - len(self._recent))

    def _may_sum_up(self) -> bool:
        return self._summed_up_at is None or self._now() - self._summed_up_at >= _MINUTE

    async def _sum_up(self, boot_id: str, node_uid: str) -> None:
        rest, self._rest, self._summed_up_at = self._rest, (), self._now()
        codes = Counter(one.fault.code for one in rest)
        named = ", ".join(f"{code} ({number})" for code, number in codes.most_common(8))
        message = f"{len(rest)} more changes of faults: {named}"
        warning = any(one.warning for one in rest)
        await self._write(self._name(node_uid, boot_id, "rest"), "ManyFaults", message, warning, node_uid)

    def _name(self, *identity: str) -> str:
        digest = hashlib.sha256("\0".join(identity).encode()).hexdigest()[:16]
        return f"{self._node[:_NAME_CHARACTERS]}.{digest}"

    async def _write(self, name: str, reason: str, message: str, warning: bool, node_uid: str) -> None:
        self._recent.append(self._now())
        stamp = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        told: dict[str, JsonValue] = {
            "reason": str(reason),
            "message": message[:_MESSAGE_CHARACTERS],
            "type": "Warning" if warning else "Normal",
            "lastTimestamp": stamp,
        }
        try:
            if not self._counts[name] and await self._make(name, told, stamp, node_uid):
                self._counts[name] = 1
            elif self._first:
                # An earlier agent of this boot has told it; an agent that starts is no news.
                self._counts[name] = 1
            else:
                self._counts[name] += 1
                await self._server.patch(_EVENTS, name, body={**told, "count": self._counts[name]})
        except ApiError as error:
            _log.warning("cannot write an Event on node %s: %s", self._node, error)
        while len(self._counts) > _COUNTED:
            del self._counts[next(iter(self._counts))]

    async def _make(self, name: str, told: dict[str, JsonValue], stamp: str, node_uid: str) -> bool:
        """Make an Event; False if it is there."""
        body: dict[str, JsonValue] = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": node_uid},
            "source": {"component": COMPONENT, "host": self._node},
            "firstTimestamp": stamp,
            "count": 1,
            **told,
        }
        try:
            await self._server.post(_EVENTS, body=body)
        except ApiError as error:
            if error.status != _CONFLICT:
                raise
            return False
        return True
