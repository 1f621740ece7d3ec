"""Attempts on an API server without controllers or kubelets: a test says itself what those would write."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from activities.jobs import AttemptQuery
from sickbay import names
from sickbay.training.attempts import AttemptPlan, AttemptRef
from sickbay.training.job import TrainingSpec
from simulator.kube.requests import MERGE_PATCH
from tests.kube_under_test import KubeUnderTest
from tests.sickbay.training.manifests.given import indexed_job, spec_of

REF = AttemptRef(cluster="c1", namespace="default", job="llama", attempt=3, fence="run-1")
SPEC: TrainingSpec = spec_of(indexed_job()).model_copy(update={"namespace": "default"})
QUERY = AttemptQuery(ref=REF, spec=SPEC)
PLAN = AttemptPlan(ref=REF, nodes=2, checkpoint_url="s3://bucket/llama")
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
INDEX = "batch.kubernetes.io/job-completion-index"


async def make_pod(kube: KubeUnderTest, rank: int = 0, *, ref: AttemptRef = REF, node: str = "", **parts: Any) -> str:
    """A pod of an attempt as its controller would make it; its name."""
    labels = {names.LABEL_JOB: ref.job, names.LABEL_ATTEMPT: str(ref.attempt), INDEX: str(rank)}
    name = f"{ref.name}-{rank}{parts.pop('suffix', '')}"
    annotations = {names.ANNOTATION_FENCE: ref.fence, **parts.pop("annotations", {})}
    await kube.create_pod(name, node=node, labels=labels, annotations=annotations, **parts)
    return name


async def set_status(kube: KubeUnderTest, name: str, **status: Any) -> None:
    """Merge something into a pod's status, as its kubelet does."""
    await kube.request("PATCH", f"{PODS}/{name}/status?fieldManager=kubelet", {"status": status}, MERGE_PATCH)


async def exists(kube: KubeUnderTest, place: str, name: str) -> bool:
    """Whether an object is there and nobody has asked for its end."""
    items = (await kube.request("GET", place))["items"]
    return any(item["metadata"]["name"] == name and "deletionTimestamp" not in item["metadata"] for item in items)


@asynccontextmanager
async def served(route: web.RouteDef) -> AsyncIterator[int]:
    """A small server of one's own; its port on the loopback address."""
    application = web.Application()
    application.add_routes([route])
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
