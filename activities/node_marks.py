"""Carries the changes of `sickbay.node_marks` and `admission_marks` out.

Each is read, decided, written bound to what was read, and again if it moved. Called by the node and Karpenter
activities, and by the controller's watch, which contains without Temporal (design, 3.11).
"""

from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from kubernetes.aio.client import ApiClient

from activities.errors import PassingError
from activities.kube import ConflictError, NotFoundError, call, path
from activities.node_models import AdmitRequest, Admittance, Containment, ContainRequest, Release, ReleaseRequest
from activities.node_reads import NODES, get_node
from activities.waiting import Clock, utc_now
from sickbay import admission_marks, node_marks
from sickbay.kube_objects import Node
from sickbay.node_change import NodeChange
from sickbay.nodes import NodeRef

WRITE_ATTEMPTS: Final = 8
"""Reads and writes before giving up on a node that others write at the same time; a kubelet alone writes every 10 s."""


class _Decision(Protocol):
    @property
    def change(self) -> NodeChange | None: ...


_Decided = TypeVar("_Decided", bound=_Decision)


async def contain(api: ApiClient, request: ContainRequest, clock: Clock = utc_now) -> Containment:
    """Block new work on a node in the name of an incident. Does nothing to a node that bears that mark already.

    Raises FinalError or PassingError.
    """
    decision = await decide_and_write(
        api, request.node, lambda node: node_marks.contain(node, request.incident_id, clock(), request.taint)
    )
    if decision is None:
        return Containment(contained=False, node_gone=True)
    return Containment(
        contained=decision.contained,
        other_incident=decision.other_incident,
        uncordoned_by_person=decision.uncordoned_by_person,
        prior_unschedulable=decision.prior_unschedulable,
    )


async def release(api: ApiClient, request: ReleaseRequest) -> Release:
    """Undo `contain` for one incident; nothing happens to a node without its mark.

    Raises FinalError or PassingError.
    """
    decision = await decide_and_write(
        api,
        request.node,
        lambda node: node_marks.release(
            node, request.incident_id, keep_cordon=request.keep_cordon, verified_boot=request.verified_boot
        ),
    )
    if decision is None:
        return Release(released=True, node_gone=True)
    return Release(released=True, left_cordoned=decision.left_cordoned)


async def admit(api: ApiClient, request: AdmitRequest) -> Admittance:
    """Take our startup taint away, and no other, and note the boot that was validated.

    Raises FinalError or PassingError.
    """
    decision = await decide_and_write(api, request.node, lambda node: admission_marks.admit(node, request.boot_id))
    if decision is None:
        return Admittance(admitted=False, node_gone=True)
    return Admittance(admitted=not decision.why_not, why_not=decision.why_not)


async def hold_back(api: ApiClient, node: NodeRef) -> bool:
    """Put our taint back on a node that somebody else rebooted; whether it bears it now.

    Raises FinalError or PassingError.
    """
    decision = await decide_and_write(api, node, admission_marks.hold_back)
    return decision is not None and decision.held


async def decide_and_write(api: ApiClient, ref: NodeRef, decide: Callable[[Node], _Decided]) -> _Decided | None:
    """The decision that holds on the node as it now stands, carried out; None if the node is gone.

    Raises FinalError, or PassingError also where others keep writing in between.
    """
    for _ in range(WRITE_ATTEMPTS):
        node = await get_node(api, ref)
        if node is None:
            return None
        decision = decide(node)
        if decision.change is None:
            return decision
        try:
            await call(api, "PATCH", path(NODES, ref.name), Node, body=decision.change.merge_patch())
        except (ConflictError, NotFoundError):
            continue
        return decision
    raise PassingError(f"node {ref.name} was written by others {WRITE_ATTEMPTS} times while we tried to")
