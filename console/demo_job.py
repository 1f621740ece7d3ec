"""The training job of the simulated cluster: a small NumPy trainer as an Indexed Job, its checkpoints in simulated S3.

Used by `sickbay demo` and by the scenario tests. The job is what a user would submit; only its command is the
simulator's own trainer, and its addresses are the stage's. Whatever happens to it, its last weights must be those of a
run that nobody disturbed, to the last bit.
"""

import asyncio
import json
import os
import sys
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import boto3
from botocore.config import Config

from console.stage import Stage
from sickbay.checkpoints.model import CheckpointFormat, CheckpointPlace
from sickbay.training.job import Elasticity, JobDeadlines, JobOutcome, JobView, Target, TrainingSpec
from simulator.cluster.pod_processes import RUN_PROCESS

BUCKET: Final = "runs"
REGION: Final = "eu-west-1"
_KEYS: Final = {"AWS_ACCESS_KEY_ID": "simulated", "AWS_SECRET_ACCESS_KEY": "simulated"}


def make_bucket(stage: Stage) -> None:
    """The bucket of the checkpoints. Raises what boto3 raises."""
    bucket_client(stage).create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})


def bucket_client(stage: Stage) -> Any:
    """S3 of the stage."""
    return boto3.client(
        "s3",
        region_name=REGION,
        endpoint_url=stage.simulator.aws,
        aws_access_key_id="simulated",
        aws_secret_access_key="simulated",
        config=Config(s3={"addressing_style": "path"}),
    )


def training_spec(
    stage: Stage,
    name: str,
    *,
    nodes: int,
    steps: int,
    save_every: int = 20,
    step_seconds: float = 0.05,
    elasticity: Elasticity | None = None,
    deadlines: JobDeadlines | None = None,
) -> TrainingSpec:
    """A job on so many nodes until so many steps."""
    command = [sys.executable, "-m", "simulator.trainer", "--steps", str(steps), "--save-every", str(save_every)]
    reporter = str(resources.files("health") / "rank_reporter.py")
    variables = {**_KEYS, "TRAINER_S3_ENDPOINT": stage.simulator.aws, "SICKBAY_REPORTER": reporter}
    container = {
        "name": "train",
        "image": "simulated",
        "command": [*command, "--step-seconds", str(step_seconds)],
        "env": [{"name": key, "value": value} for key, value in variables.items()],
        "resources": {"limits": {"nvidia.com/gpu": 8}},
    }
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 20,
        "containers": [container],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    }
    template = {"metadata": {"annotations": {RUN_PROCESS: "true"}}, "spec": pod}
    manifest: dict[str, Any] = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {"completionMode": "Indexed", "completions": nodes, "parallelism": nodes, "template": template},
    }
    return TrainingSpec(
        name=name,
        manifest=manifest,
        checkpoints=CheckpointPlace(
            url=f"s3://{BUCKET}/{name}/{{attempt}}",
            format=CheckpointFormat.MANIFEST,
            region=REGION,
            endpoint=stage.simulator.aws,
        ),
        target=Target(step=steps),
        elasticity=elasticity,
        deadlines=deadlines or JobDeadlines(),
    )


def last_weights(stage: Stage, view: JobView) -> str:
    """The checksum of a job's weights at its target, by the manifest beside them. Raises what boto3 raises."""
    step, attempt = view.target_step or 0, view.history.attempts[-1].attempt
    key = f"{view.name}/{attempt}/step-{step:08d}/manifest.json"
    body = bucket_client(stage).get_object(Bucket=BUCKET, Key=key)["Body"].read()
    return _checksum(body)


async def undisturbed_weights(steps: int, save_every: int = 20) -> str:
    """The checksum of the weights after so many steps of a run on one machine that nobody disturbs."""
    words = ["-m", "simulator.trainer", "--steps", str(steps), "--save-every", str(save_every), "--step-seconds", "0"]
    with TemporaryDirectory() as folder:
        environment = {**os.environ, "SICKBAY_CHECKPOINT_URL": folder, "SICKBAY_NODES": "1"}
        quiet = asyncio.subprocess.DEVNULL
        run = await asyncio.create_subprocess_exec(sys.executable, *words, env=environment, stdout=quiet)
        if await run.wait() != 0:
            raise RuntimeError(f"the undisturbed run ended with {run.returncode}")
        return _checksum((Path(folder) / f"step-{steps:08d}" / "manifest.json").read_bytes())


async def wrong_end(stage: Stage, view: JobView) -> str:
    """What is wrong with a job's end; empty if it is as it must be: several attempts, and the weights of none lost."""
    if view.outcome is not JobOutcome.SUCCEEDED:
        return f"{view.name}: {view.outcome or view.stage}, which should be {JobOutcome.SUCCEEDED}"
    if len(view.history.attempts) < 2:
        return f"{view.name}: no fault has met it"
    if last_weights(stage, view) != await undisturbed_weights(view.target_step or 0):
        return f"{view.name}: its weights are not those of an undisturbed run"
    return ""


def _checksum(manifest: bytes) -> str:
    return str(json.loads(manifest)["files"][0]["sha256"])
