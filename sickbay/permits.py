"""What incidents and the disruption budget say to each other, all by signal (facts: Temporal, 0.4 and 1.8).

An incident signals `request_permit` to the budget, and waits for `permit_granted`, `permit_refused` or its own
deadline; `permit_waiting` only tells it whom it waits for. It renews while it works and signals `release_permit` on
every way out.
"""

from datetime import datetime, timedelta

from sickbay.faults import Rung
from sickbay.model import Frozen
from sickbay.nodes import NodeRef
from sickbay.policy.model import Limit


class PermitRequest(Frozen):
    """Leave asked to take one node out of its pool. A repeated request of one holder is the same request."""

    holder: str
    """Workflow id of the incident that asks."""
    node: NodeRef
    rung: Rung
    limit: Limit
    """The pool's ceiling by the policy that the holder runs under."""
    lease: timedelta
    requested_at: datetime
    wait_until: datetime | None = None
    """When the holder gives up waiting; shown to people, enforced by the holder."""


class PermitRenewal(Frozen):
    """The holder still lives and works."""

    holder: str
    epoch: int


class PermitRelease(Frozen):
    """The holder is done, or no longer waits."""

    holder: str


class Permit(Frozen):
    """Leave to disrupt. `epoch` grows with each grant: a holder of an older epoch has lost its permit."""

    holder: str
    epoch: int
    granted_at: datetime
    expires_at: datetime


class PermitRefusal(Frozen):
    """The budget will never grant this request, e.g. because the ceiling is 0.

    Also the answer to a renewal of a permit that is no longer held: the holder must ask anew before it disrupts.
    """

    holder: str
    reason: str


class PermitWaiting(Frozen):
    """Why the permit is not given yet, in words with the names of those ahead or out."""

    holder: str
    reason: str
