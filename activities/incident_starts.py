"""Opening a machine's incident, or telling the one that is open.

Called by the controller's watch through its desk, and by an admission, whose node failed validation. Opening is one
atomic call, a start with a signal, so that two callers, or two tries of one, give one incident (facts: Temporal, 1.4).
"""

from datetime import timedelta
from typing import Final

from temporalio.client import Client
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.service import RPCError, RPCStatusCode

from sickbay import names, search_attributes
from sickbay.faults import Fault
from sickbay.incident import FaultReport, FaultsCleared, IncidentInput, Stage
from sickbay.nodes import NodeRef

CALL_TIMEOUT: Final = timedelta(seconds=10)
_SUMMARY_LENGTH: Final = 180
"""The server keeps 200 bytes of a summary."""


async def open_incident(client: Client, start: IncidentInput, report: FaultReport) -> str:
    """Start the incident of a machine, or tell the open one; its id. Raises RPCError."""
    incident_id = names.incident_id(start.node.cluster, start.node.machine)
    await client.start_workflow(
        names.WORKFLOW_INCIDENT,
        start,
        id=incident_id,
        task_queue=names.CONTROLLER_QUEUE,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        start_signal=names.SIGNAL_REPORT_FAULTS,
        start_signal_args=[report],
        search_attributes=attributes_of(start.node, Stage.OPENED, start.faults, start.attributes_missing),
        static_summary=summary_of(start.node, start.faults),
        rpc_timeout=CALL_TIMEOUT,
    )
    return incident_id


async def signal_incident(client: Client, incident_id: str, signal: str, message: FaultReport | FaultsCleared) -> bool:
    """Tell an open incident something; false if it is over by now. Raises RPCError."""
    handle = client.get_workflow_handle(incident_id)
    try:
        await handle.signal(signal, message, rpc_timeout=CALL_TIMEOUT)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True


def attributes_of(
    node: NodeRef, stage: str, faults: tuple[Fault, ...], missing: tuple[str, ...]
) -> TypedSearchAttributes:
    """The attributes that name what is started for a node; set at the start they cost nothing."""
    keywords: dict[SearchAttributeKey[str], str] = {
        search_attributes.CLUSTER: node.cluster,
        search_attributes.NODE: node.name,
        search_attributes.MACHINE: node.machine,
        search_attributes.POOL: node.pool,
        search_attributes.STAGE: stage,
    }
    pairs = [SearchAttributePair(key, value) for key, value in keywords.items() if key.name not in missing]
    if search_attributes.FAULT.name in missing:
        return TypedSearchAttributes(pairs)
    codes = sorted({fault.code for fault in faults})
    return TypedSearchAttributes([*pairs, SearchAttributePair(search_attributes.FAULT, codes)])


def summary_of(node: NodeRef, faults: tuple[Fault, ...]) -> str:
    """What a list of workflows shows of an incident."""
    codes = ", ".join(sorted({fault.code for fault in faults}))
    return f"{node.name}: {codes}".encode()[:_SUMMARY_LENGTH].decode(errors="ignore")
