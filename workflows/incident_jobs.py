"""An incident's talk with the training jobs on its node: asked to leave before a drain, told when it is over.

Called by the incident's climb and at its close. The jobs answer by signal (`handshake.JobAnswer`); those that do not
run any more, or do not answer in time, keep nobody: the drain then goes on by the Eviction API. What is asked of them
is `sickbay.job_notice`'s rule.
"""

from functools import partial

from temporalio import workflow

from activities.job_incidents import JobIncidentActivities, JobsOnNode, JobsOver
from sickbay import job_notice
from sickbay.ladder import Step
from sickbay.training.handshake import NodeOver, NodeTrouble
from workflows import policies
from workflows.incident_permit import PermitDesk
from workflows.incident_record import IncidentRecord
from workflows.incident_waits import IncidentWaits
from workflows.outside import HostSilentError, OutsideError, told


class JobTalk:
    """The jobs on one incident's node."""

    def __init__(self, record: IncidentRecord, waits: IncidentWaits, permit: PermitDesk) -> None:
        self._record = record
        self._waits = waits
        self._permit = permit
        self._asked: tuple[str, ...] = ()

    async def leave(self, step: Step) -> bool:
        """Have the jobs leave; true if a look shows the step still due when they have, or when their time is up."""
        if not await self._left(step):
            return False
        await self._waits.look()
        return not self._waits.overtaken(step)

    async def _left(self, step: Step) -> bool:
        """False as soon as something else is due, or leave to disrupt is lost."""
        record = self._record
        trouble = job_notice.trouble_of(
            record.incident_id, record.node, record.troubles, step.rung, record.policy.jobs, workflow.now()
        )
        if not await self._tell(trouble):
            return True
        record.note(f"asks {len(record.state.jobs_told)} training job(s) to leave: {trouble.urgency}")
        while missing := self._awaited():
            left = trouble.until - workflow.now()
            if left.total_seconds() <= 0:
                record.note(f"goes on without an answer of {', '.join(missing)}")
                break
            pause = workflow.now() + min(left, record.policy.budget.lease / 2)
            what = f"training jobs to leave: {', '.join(missing)}"
            await self._waits.for_plan_to_change(step, pause, what, done=partial(self._changed, missing))
            # The wait may be longer than a permit lasts.
            if self._waits.overtaken(step) or not await self._permit.renewed():
                return False
        return True

    async def over(self, *, well: bool) -> None:
        """Tell those that were told before."""
        record = self._record
        if not record.state.jobs_told:
            return
        message = NodeOver(incident_id=record.incident_id, node=record.node, well=well)
        await told(
            workflow.execute_activity_method(
                JobIncidentActivities.tell_jobs_over,
                JobsOver(jobs=record.state.jobs_told, over=message),
                **policies.COURTESY,
                summary="tell the training jobs that it is over",
            )
        )

    async def _tell(self, trouble: NodeTrouble) -> bool:
        """Whether any job took the word. Not to reach the jobs is no reason to leave a sick node as it is."""
        record = self._record
        # Answers to an earlier word say nothing of pods that came since; those to this one may come before it returns.
        record.change(job_answers=())
        try:
            answer = await told(
                workflow.execute_activity_method(
                    JobIncidentActivities.tell_jobs,
                    JobsOnNode(trouble=trouble),
                    **policies.STEP,
                    summary=f"tell the training jobs on {record.node.name}",
                )
            )
        except (OutsideError, HostSilentError) as failed:
            record.note(f"the training jobs were not told: {failed}")
            return False
        record.change(jobs_told=tuple(dict.fromkeys((*record.state.jobs_told, *answer.jobs))))
        self._asked = answer.jobs
        return bool(answer.jobs)

    def _changed(self, missing: tuple[str, ...]) -> bool:
        return self._awaited() != missing or self._record.permit is None

    def _awaited(self) -> tuple[str, ...]:
        return job_notice.awaited(self._asked, self._record.state.job_answers)
