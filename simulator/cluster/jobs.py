"""The job controller: Indexed Jobs, as training uses them.

Each index has one live pod at a time, until it has succeeded once. A failed pod is replaced and counted against the
backoff limit, unless the job's failure policy ignores its condition (facts: remediation, 2.4). Not simulated: other
completion modes, backoff delays between replacements, suspension, success policies, exit-code rules.
"""

import copy
from collections.abc import Mapping

from simulator.cluster.api import Json, PatchKind
from simulator.cluster.job_objects import FailurePolicyRule, Job
from simulator.cluster.objects import Pod, condition_of
from simulator.cluster.stamps import condition, stamp
from simulator.cluster.world import World

INDEX = "batch.kubernetes.io/job-completion-index"
JOB_NAME = "batch.kubernetes.io/job-name"


class Jobs:
    """Keeps every job's pods."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._counted: set[str] = set()
        """UIDs of failed pods that are in a job's status already."""
        self._done: dict[str, set[int]] = {}
        """Indices that have succeeded, by UID of the job: they stay so when their pods are gone."""

    async def run(self) -> None:
        """For ever."""
        await self._world.keep("job controller", self._keep_all, (self._world.jobs, self._world.pods))

    async def _keep_all(self) -> None:
        known = {job.metadata.uid for job in self._world.jobs}
        self._done = {uid: done for uid, done in self._done.items() if uid in known}
        unfinished = [job for job in self._world.jobs if not is_finished(job) and not job.deleting]
        await self._world.each(unfinished, self._keep)

    async def _keep(self, job: Job) -> None:
        pods = [pod for pod in self._world.pods if pod.controller and pod.controller.uid == job.metadata.uid]
        fresh = [pod for pod in pods if pod.status.phase == "Failed" and pod.metadata.uid not in self._counted]
        failed = job.status.failed + sum(counts_as_failure(job, pod) for pod in fresh)
        done = self._done.setdefault(job.metadata.uid, set())
        done |= {index_of(pod) for pod in pods if pod.status.phase == "Succeeded"}
        live = [pod for pod in pods if not pod.finished]
        await self._write_status(job, live, done, failed)
        self._counted |= {pod.metadata.uid for pod in fresh}
        if failed > job.spec.backoff_limit:
            await self._world.each([pod for pod in live if not pod.deleting], self._world.pods.delete)
            return
        taken = {index_of(pod) for pod in live if holds_index(job, pod)}
        missing = [index for index in range(job.spec.completions or job.spec.parallelism) if index not in done | taken]
        for index in missing[: max(job.spec.parallelism - len(taken), 0)]:
            await self._world.pods.create(pod_for(job, index), job.metadata.namespace)

    async def _write_status(self, job: Job, live: list[Pod], done: set[int], failed: int) -> None:
        now = self._world.clock.now()
        conditions: list[Mapping[str, str]] = []
        status: dict[str, object] = {
            "active": sum(not pod.deleting for pod in live),
            "ready": sum(pod.ready and not pod.deleting for pod in live),
            "succeeded": len(done),
            "failed": failed,
        }
        shown = {key: getattr(job.status, key) for key in status}
        if failed > job.spec.backoff_limit:
            conditions = [condition(kind, True, now, "BackoffLimitExceeded") for kind in ("FailureTarget", "Failed")]
        elif len(done) >= (job.spec.completions or job.spec.parallelism):
            conditions = [
                condition(kind, True, now, "CompletionsReached") for kind in ("SuccessCriteriaMet", "Complete")
            ]
            status["completionTime"] = stamp(now)
        if not conditions and shown == status:
            return
        status |= {"conditions": conditions, "completedIndexes": ",".join(map(str, sorted(done)))}
        if job.status.start_time is None:
            status["startTime"] = stamp(now)
        await self._world.jobs.patch(job, {"status": status}, kind=PatchKind.STRATEGIC, subresource="status")


def is_finished(job: Job) -> bool:
    """Whether the job has ended, well or not."""
    ends = (condition_of(job.status.conditions, kind) for kind in ("Complete", "Failed"))
    return any(end is not None and end.status == "True" for end in ends)


def index_of(pod: Pod) -> int:
    """The completion index of a job's pod."""
    return int(pod.metadata.annotations.get(INDEX, 0))


def holds_index(job: Job, pod: Pod) -> bool:
    """Whether an unfinished pod keeps its index: with a failure policy even while it terminates, because its end is
    still to be judged (podReplacementPolicy Failed)."""
    return not pod.deleting or job.spec.pod_failure_policy is not None


def counts_as_failure(job: Job, pod: Pod) -> bool:
    """Whether a failed pod counts against the backoff limit."""
    rules = job.spec.pod_failure_policy.rules if job.spec.pod_failure_policy else ()
    matched = next((rule for rule in rules if _matches(rule, pod)), None)
    return matched is None or matched.action != "Ignore"


def _matches(rule: FailurePolicyRule, pod: Pod) -> bool:
    found = [(condition_of(pod.status.conditions, wanted.type), wanted) for wanted in rule.on_pod_conditions]
    return any(condition is not None and condition.status == wanted.status for condition, wanted in found)


def pod_for(job: Job, index: int) -> Json:
    """A new pod for one index, named as Kubernetes names it."""
    template_labels = job.spec.template.metadata.get("labels")
    labels = dict(template_labels) if isinstance(template_labels, Mapping) else {}
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    template_annotations = job.spec.template.metadata.get("annotations")
    annotations = dict(template_annotations) if isinstance(template_annotations, Mapping) else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{job.name}-{index}-",
            "namespace": job.metadata.namespace,
            "labels": {**labels, JOB_NAME: job.name, "job-name": job.name, INDEX: str(index)},
            "annotations": {**annotations, INDEX: str(index)},
            "ownerReferences": [owner],
        },
        "spec": {"hostname": f"{job.name}-{index}", **copy.deepcopy(job.spec.template.spec)},
    }
