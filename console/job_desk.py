"""How commands reach training jobs: starting one, finding the one that is meant, reading it, giving it an order.

Called by `console.train_jobs` and `console.train_report`. What all workflows have in common is in
`console.temporal_desk`.
"""

import re
from typing import Any, Final

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus, WorkflowHandle
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError

from console import temporal_desk
from console.errors import UserError
from console.temporal_desk import ANSWER_TIMEOUT, REFUSED
from sickbay import names, search_attributes
from sickbay.training.job import JobCommand, JobInput, JobReply, JobResult, JobStage, JobView
from workers.search_attributes import missing_search_attributes

Handle = WorkflowHandle[Any, JobResult]

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9./]*[a-z0-9])?")
_OF_JOBS: Final = f"WorkflowType = '{names.WORKFLOW_JOB}'"


async def submit(client: Client, start: JobInput) -> Handle:
    """Start a job's workflow. Raises UserError if one of its name is open."""
    spec = start.spec
    missing = await missing_search_attributes(client)
    job_id = names.job_id(start.cluster, spec.namespace, spec.name)
    try:
        return await client.start_workflow(
            names.WORKFLOW_JOB,
            start.model_copy(update={"attributes_missing": missing}),
            id=job_id,
            task_queue=names.CONTROLLER_QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            search_attributes=_attributes(start, missing),
            static_summary=f"training job {spec.namespace}/{spec.name}",
            result_type=JobResult,
            rpc_timeout=ANSWER_TIMEOUT,
        )
    except WorkflowAlreadyStartedError as error:
        see = f"see `sickbay train status {spec.name}`; give the new one another name, or cancel the old one"
        raise UserError(f"{job_id} is open already: {see}", REFUSED) from error


async def find(client: Client, wanted: str, cluster: str = "") -> Handle:
    """The job of a workflow id, a name, or `namespace/name`: the open one, else the latest.

    Raises UserError if there is none, or if open ones of several clusters or namespaces bear the name.
    """
    if not _NAME.fullmatch(wanted):
        raise UserError(f"{wanted!r} is no name of a training job; see `sickbay train list`")
    if wanted.startswith("job-") and await temporal_desk.exists(handle_of(client, wanted)):
        return handle_of(client, wanted)
    found = [each for each in await list_jobs(client, cluster=cluster) if _is_called(each, wanted)]
    running = sorted({each.id for each in found if each.status is WorkflowExecutionStatus.RUNNING})
    if len(running) > 1:
        raise UserError(f"{len(running)} open jobs are called {wanted}; name one of {', '.join(running)}")
    if not found:
        raise UserError(f"there is no training job {wanted}; see `sickbay train list --all`")
    return handle_of(client, running[0] if running else max(found, key=lambda each: each.start_time).id)


async def list_jobs(client: Client, *, cluster: str = "", limit: int = 1000) -> list[WorkflowExecution]:
    """Jobs, open and over, newest first."""
    query = _OF_JOBS
    if cluster:
        query += f" AND WorkflowId STARTS_WITH '{names.job_id(cluster, '', '').rstrip('-')}-'"
    return await temporal_desk.search(client, query, limit)


def handle_of(client: Client, job_id: str) -> Handle:
    """The job of an id that is known to be one; nothing is asked of the server."""
    return client.get_workflow_handle(job_id, result_type=JobResult)


async def read(handle: Handle) -> JobView:
    """The job as it is, or as it ended. Raises UserError if it cannot be read."""
    told = await temporal_desk.open_or_result(handle, JobView)
    return told.view if isinstance(told, JobResult) else told


async def order(handle: Handle, command: JobCommand) -> JobReply:
    """Give an order. Raises UserError with the job's own words if it refuses, and if it is over or silent."""
    update_id = f"{command.kind}-{command.request_id}"
    see = f"sickbay train status {handle.id}"
    return await temporal_desk.give(handle, command, update_id, JobReply, how_it_ended=see)


def _is_called(execution: WorkflowExecution, wanted: str) -> bool:
    """By its search attribute `namespace/name`; by its id where the namespace has no such attribute."""
    name = execution.typed_search_attributes.get(search_attributes.JOB)
    if name is None:
        return execution.id.endswith(f"-{wanted.replace('/', '-')}")
    return wanted in (name, name.partition("/")[2])


def _attributes(start: JobInput, missing: tuple[str, ...]) -> TypedSearchAttributes:
    words: dict[SearchAttributeKey[str], str] = {
        search_attributes.JOB: f"{start.spec.namespace}/{start.spec.name}",
        search_attributes.CLUSTER: start.cluster,
        search_attributes.STAGE: JobStage.SUBMITTED,
    }
    return TypedSearchAttributes(
        [SearchAttributePair(key, word) for key, word in words.items() if key.name not in missing]
    )
