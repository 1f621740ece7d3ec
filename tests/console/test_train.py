"""The people's commands for training jobs, typed as people type them, against a real server and a stand-in job."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from console.main import run
from sickbay import names
from sickbay.goodput.model import Bucket
from sickbay.training.job import JobCommandKind
from tests.eventually import eventually
from tests.job_stand_in import StandInJob

SPEC = """
name: {name}
checkpoints: {{url: s3://runs/{name}}}
target: {{step: 100}}
manifest:
  apiVersion: batch/v1
  kind: Job
  spec:
    completionMode: Indexed
    parallelism: 2
    completions: 2
    backoffLimit: 0
    template:
      spec:
        restartPolicy: Never
        containers:
          - name: main
            image: trainer:1
            resources: {{limits: {{nvidia.com/gpu: 8}}}}
"""


@dataclass
class Typed:
    """What a command line led to."""

    code: int
    out: str
    err: str


@dataclass
class Desk:
    """A server, one submitted job, and a keyboard."""

    client: Client
    cluster: str
    name: str
    file: Path
    keyboard: pytest.CaptureFixture[str]

    @property
    def job_id(self) -> str:
        return names.job_id(self.cluster, "default", self.name)

    async def type(self, *words: str) -> Typed:
        self.keyboard.readouterr()
        code = await asyncio.to_thread(run, ["train", *words])
        out, err = self.keyboard.readouterr()
        return Typed(code, out, err)

    async def submit(self) -> Typed:
        return await self.type("submit", str(self.file), "--cluster", self.cluster, "--by", "ada")


@pytest.fixture
async def desk(
    dev_server: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> AsyncIterator[Desk]:
    client = dev_server.client
    monkeypatch.setenv("TEMPORAL_ADDRESS", client.service_client.config.target_host)
    monkeypatch.setenv("TEMPORAL_NAMESPACE", client.namespace)
    token = uuid4().hex[:8]
    file = tmp_path / "job.yaml"
    file.write_text(SPEC.format(name=f"run-{token}"), encoding="utf-8")
    made = Desk(client, f"lab-{token}", f"run-{token}", file, capsys)
    async with Worker(client, task_queue=names.CONTROLLER_QUEUE, workflows=[StandInJob], max_cached_workflows=10):
        yield made


@pytest.fixture
async def submitted(desk: Desk) -> Desk:
    assert (await desk.submit()).code == 0
    await eventually(lambda: _listed(desk))
    return desk


async def _listed(desk: Desk) -> bool:
    found = [each async for each in desk.client.list_workflows(f"WorkflowId = '{desk.job_id}'")]
    return bool(found)


async def test_a_submitted_job_can_be_found_by_its_name_and_shows_where_it_stands(submitted: Desk) -> None:
    listed = await submitted.type("list", "--cluster", submitted.cluster)
    assert submitted.name in listed.out
    for wanted in (submitted.name, f"default/{submitted.name}", submitted.job_id):
        shown = await submitted.type("status", wanted)
        assert shown.code == 0
        for words in ("40 of 100", "no checkpoint can be trusted", "train retry"):
            assert words in shown.out


async def test_a_second_job_of_the_name_is_refused_while_the_first_is_open(submitted: Desk) -> None:
    again = await submitted.submit()
    assert again.code == 1
    assert "is open already" in again.err


async def test_explain_prints_rule_evidence_and_what_did_not_answer(submitted: Desk) -> None:
    shown = await submitted.type("explain", submitted.name)
    for words in ("row-03-hardware-on-node", "uncorrectable ECC", "rank 3 (node-a)", "timed out", "platform"):
        assert words in shown.out
    other = await submitted.type("explain", submitted.name, "--attempt", "7")
    assert other.code == 2
    assert "attempt 7 has failed; 1 attempt(s) were made" in other.err
    as_json = json.loads((await submitted.type("explain", submitted.name, "--attempt", "1", "--json")).out)
    assert as_json["verdict"]["class"] == "platform"


async def test_orders_reach_the_job_with_name_and_reason_and_a_refusal_is_its_own_words(submitted: Desk) -> None:
    said = await submitted.type("from-step", submitted.name, "20", "--reason", "looked at it", "--by", "ada")
    assert (said.code, said.out.strip()) == (0, f"{submitted.job_id}: from_step by ada")
    refused = await submitted.type("resume", submitted.name, "--reason", "go on", "--by", "ada")
    assert (refused.code, refused.err.strip()) == (1, "sickbay: refused: it is not paused")
    handle = submitted.client.get_workflow_handle_for(StandInJob.run, submitted.job_id)
    (order,) = await handle.query(StandInJob.orders)
    assert (order.kind, order.step, order.by) == (JobCommandKind.FROM_STEP, 20, "ada")


async def test_the_report_accounts_for_all_time_and_draws_it(submitted: Desk, tmp_path: Path) -> None:
    drawn = tmp_path / "timeline.svg"
    typed = await submitted.type("report", submitted.name, "--picture", str(drawn))
    assert typed.code == 0
    assert "ETTR" in typed.out
    assert f"drawn in {drawn}" in typed.out.replace("\n", "")
    assert drawn.read_text().startswith("<svg")
    told = json.loads((await submitted.type("report", submitted.name, "--json", "--no-picture")).out)
    assert {each["bucket"] for each in told["buckets"]} == set(Bucket)


async def test_a_picture_that_cannot_be_written_is_told_with_the_cure(submitted: Desk) -> None:
    typed = await submitted.type("report", submitted.name, "--picture", "/nonexistent/timeline.svg")
    assert typed.code == 2
    assert "cannot write /nonexistent/timeline.svg" in typed.err
    assert "--picture" in typed.err


async def test_a_job_that_is_over_shows_its_end_and_takes_no_orders(submitted: Desk) -> None:
    assert (await submitted.type("cancel", submitted.name, "--reason", "enough", "--by", "ada")).code == 0
    await submitted.client.get_workflow_handle(submitted.job_id).result()
    assert "closed" in (await submitted.type("status", submitted.name)).out
    late = await submitted.type("pause", submitted.name, "--reason", "late", "--by", "ada")
    assert late.code == 1
    assert "is over already" in late.err


async def test_a_job_that_nobody_knows_is_told_so_with_the_next_step(desk: Desk) -> None:
    shown = await desk.type("status", "never-was")
    assert shown.code == 2
    assert "there is no training job never-was; see `sickbay train list --all`" in shown.err


async def test_a_file_that_cannot_be_used_is_told_in_one_line_and_nothing_starts(desk: Desk) -> None:
    desk.file.write_text("name: x\n", encoding="utf-8")
    wrong = await desk.submit()
    assert wrong.code == 2
    assert str(desk.file) in wrong.err
    assert "Traceback" not in wrong.err
    missing = await desk.type("submit", str(desk.file.with_name("none.yaml")), "--cluster", "lab", "--by", "ada")
    assert "cannot read" in missing.err


async def test_a_dry_run_starts_nothing(desk: Desk) -> None:
    tried = await desk.type("submit", str(desk.file), "--cluster", desk.cluster, "--by", "ada", "--dry-run")
    assert tried.code == 0
    assert "can be submitted" in tried.out
    assert not await _listed(desk)
