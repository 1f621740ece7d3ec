"""EC2 Auto Scaling: whose member an instance is, and replacing it through its group."""

from sickbay.model import Frozen


class MembershipQuery(Frozen):
    """One instance."""

    instance_id: str


class Membership(Frozen):
    """The group of an instance; empty if it has none."""

    group: str = ""
    suspended: tuple[str, ...] = ()
    """Suspended processes of the group without which no replacement comes (Launch, Terminate, ReplaceUnhealthy)."""


class MemberReplacement(Frozen):
    """End a member so that its group puts another in its place."""

    instance_id: str
    group: str
    incident_id: str
    attempt: int


class MemberReplacementReport(Frozen):
    """What came of it."""

    requested: bool
    already: bool = False
