"""The training job of the simulated cluster: a small NumPy trainer as an Indexed Job, its checkpoints in simulated S3.

Used by `sickbay demo` and by the scenario tests. The job is what a user would submit; only its command is the
simulator's own trainer, and its addresses are the stage's.
"""

import sys
from importlib import resources
from typing import Any, Final

import boto3
from botocore.config import Config

from console.stage import Stage
from sickbay.checkpoints.model import CheckpointFormat, CheckpointPlace
from sickbay.training.job import Elasticity, JobDeadlines, Target, TrainingSpec
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
