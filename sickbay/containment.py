"""Whether the watch may cordon one more node by itself.

Called by the controller's watch before each containment that asks nobody (design, 3.11). A bad detector reports on
many nodes at once: past the cap the incidents still open, and only their nodes stay schedulable until a person or a
permit says otherwise. What may be *disrupted* is `sickbay.budget`'s affair.
"""

from sickbay.limits import ceiling
from sickbay.model import Frozen
from sickbay.policy.model import ContainmentPolicy


class ContainmentDecision(Frozen):
    """Whether one more cordon is within the cap, and why not."""

    allowed: bool
    reason: str = ""
    """For a person: the cap, and what counts against it. Empty if allowed."""


def may_contain(policy: ContainmentPolicy, *, gpu_nodes: int, contained: int) -> ContainmentDecision:
    """Whether the watch may cordon one node more than the `contained` of `gpu_nodes` that we hold cordoned now.

    A node that carries our mark already is not asked for again: containing it anew changes nothing.
    """
    cap = ceiling(policy.cap, gpu_nodes)
    if contained < cap:
        return ContainmentDecision(allowed=True)
    return ContainmentDecision(
        allowed=False,
        reason=f"containment cap reached: {contained} of {gpu_nodes} GPU nodes are cordoned by Sickbay, "
        f"and the policy allows {cap}; close incidents, or raise containment.cap",
    )
