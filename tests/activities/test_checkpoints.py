"""Checkpoints in folders and buckets, over real sockets: paged, refused, gone meanwhile, verified, remembered."""

import hashlib
import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import boto3
import pytest
from aiohttp import web
from temporalio.testing import ActivityEnvironment

from activities.checkpoints import CheckpointActivities, TargetQuery
from activities.errors import PassingError
from sickbay.checkpoints.model import CheckpointListing, CheckpointPlace, CheckpointQuery, Level
from sickbay.training.job import Target
from tests.sickbay.checkpoints.layouts import dcp, manifest

from .aws_servers import REGION, aws_credentials, aws_url

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["aws_credentials", "aws_url"]


@pytest.fixture
def bucket(aws_url: str, aws_credentials: None) -> Iterator[tuple["S3Client", str]]:
    """S3, and a bucket of the test's own."""
    client = boto3.client("s3", region_name=REGION, endpoint_url=aws_url)
    name = f"runs-{uuid4().hex[:12]}"
    client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
    yield client, name
    client.close()


def fill(bucket: tuple["S3Client", str], files: dict[str, bytes], prefix: str = "run") -> None:
    client, name = bucket
    for path, data in files.items():
        client.put_object(Bucket=name, Key=f"{prefix}/{path}", Body=data)


def place(bucket: tuple["S3Client", str], aws_url: str, path: str = "run") -> CheckpointPlace:
    return CheckpointPlace(url=f"s3://{bucket[1]}/{path}", region=REGION, endpoint=aws_url)


async def listing(
    where: CheckpointPlace, activities: CheckpointActivities | None = None, **more: Any
) -> CheckpointListing:
    activities = activities or CheckpointActivities()
    query = CheckpointQuery(place=where, **more)
    found: CheckpointListing = await ActivityEnvironment().run(activities.list_checkpoints, query)
    return found


def steps(found: CheckpointListing) -> list[tuple[int, Level]]:
    return [(each.step, each.level) for each in found.checkpoints]


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


async def test_a_bucket_is_listed_page_by_page_to_its_end(bucket: tuple["S3Client", str], aws_url: str) -> None:
    fill(bucket, {f"a-log/{number:05d}": b"x" for number in range(1_010)})
    fill(bucket, dcp(100))
    found = await listing(place(bucket, aws_url))
    assert found.complete
    assert steps(found) == [(100, Level.VERIFIED)]
    assert found.checkpoints[0].path == f"s3://{bucket[1]}/run/step_100"


async def test_more_files_than_may_be_listed_leave_the_listing_incomplete(tmp_path: Path) -> None:
    write(tmp_path, {f"log/{number}": b"x" for number in range(20)})
    found = await listing(CheckpointPlace(url=str(tmp_path)), CheckpointActivities(files_most=10))
    assert not found.complete
    assert "more than 10 files" in found.problems[0]


async def test_each_attempt_has_its_own_place_and_one_that_wrote_nothing_is_no_problem(
    bucket: tuple["S3Client", str], aws_url: str
) -> None:
    fill(bucket, dcp(100), "run/1")
    fill(bucket, dcp(300), "run/3")
    found = await listing(place(bucket, aws_url, "run/{attempt}"), attempts=(1, 2, 3))
    assert found.complete
    assert [(each.step, each.attempt) for each in found.checkpoints] == [(300, 3), (100, 1)]


async def test_a_bucket_that_is_not_there_is_told_and_not_empty(aws_url: str, aws_credentials: None) -> None:
    found = await listing(CheckpointPlace(url="s3://nobodys-bucket/run", region=REGION, endpoint=aws_url))
    assert not found.complete
    assert "there is no bucket of this name; correct the URL" in found.problems[0]


@pytest.fixture
async def refusing(aws_credentials: None) -> Any:
    """An S3 that answers everything with what it is told."""
    answer: dict[str, Any] = {"status": 403, "code": "AccessDenied"}

    async def respond(_: web.Request) -> web.Response:
        body = f"<Error><Code>{answer['code']}</Code><Message>no</Message></Error>"
        return web.Response(status=int(answer["status"]), text=body, content_type="application/xml")

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", respond)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield answer, f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (403, "AccessDenied", "access is denied (AccessDenied); grant s3:ListBucket"),
        (403, "InvalidAccessKeyId", "the credentials are not accepted"),
        (400, "ExpiredToken", "renew them"),
        (404, "NoSuchBucket", "there is no bucket"),
        (501, "NotImplemented", "S3 answered NotImplemented"),
    ],
)
async def test_a_refusal_is_unknown_and_names_place_and_cure(refusing: Any, status: int, code: str, words: str) -> None:
    answer, url = refusing
    answer.update(status=status, code=code)
    found = await listing(CheckpointPlace(url="s3://runs/run", region=REGION, endpoint=url))
    assert (found.complete, found.checkpoints) == (False, ())
    assert words in found.problems[0]
    assert "s3://runs/run" in found.problems[0]


async def test_a_folder_that_is_not_mounted_is_told_and_an_empty_one_is_empty(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    assert (await listing(CheckpointPlace(url=f"{tmp_path}/runs/llama"))).complete
    found = await listing(CheckpointPlace(url=f"{tmp_path}/unmounted/llama"))
    assert not found.complete
    assert "is the file system mounted here?" in found.problems[0]


async def test_a_file_that_vanishes_while_it_is_read_leaves_its_checkpoint_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {**dcp(100), **dcp(200)})
    real = Path.open

    def opened(path: Path, *words: Any, **more: Any) -> Any:
        if path.parent.name == "step_200":
            raise FileNotFoundError(path)
        return real(path, *words, **more)

    monkeypatch.setattr(Path, "open", opened)
    found = await listing(CheckpointPlace(url=str(tmp_path)))
    assert steps(found) == [(200, Level.UNKNOWN), (100, Level.VERIFIED)]


async def test_checksums_are_read_only_where_that_is_asked_for(tmp_path: Path) -> None:
    files = manifest(100)
    write(tmp_path, {**files, "step-00000100/weights.npz": b"\1" * 32})
    assert steps(await listing(CheckpointPlace(url=str(tmp_path)))) == [(100, Level.COMMITTED)]
    found = await listing(CheckpointPlace(url=str(tmp_path)), verify=True)
    assert steps(found) == [(100, Level.LISTED)]
    assert "another checksum" in found.checkpoints[0].problems[0]


async def test_checksums_that_agree_verify(tmp_path: Path) -> None:
    data = b"weights"
    listed = [{"path": "w", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}]
    told = json.dumps({"step": 7, "files": listed}).encode()
    write(tmp_path, {"step-7/w": data, "step-7/manifest.json": told})
    assert steps(await listing(CheckpointPlace(url=str(tmp_path)), verify=True)) == [(7, Level.VERIFIED)]


async def test_a_whole_one_that_has_not_changed_is_not_read_again_and_one_that_has_is(tmp_path: Path) -> None:
    activities = CheckpointActivities()
    write(tmp_path, dcp(100))
    where = CheckpointPlace(url=str(tmp_path))
    assert steps(await listing(where, activities)) == [(100, Level.VERIFIED)]
    (tmp_path / "step_100" / ".metadata").write_bytes(b"garbage")
    assert steps(await listing(where, activities)) == [(100, Level.LISTED)]


async def test_a_store_that_does_not_answer_in_time_is_passing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr("activities.checkpoints.store_of", lambda *_: released.wait(30))
    activities = CheckpointActivities(look_most=timedelta(milliseconds=50))
    with pytest.raises(PassingError, match="did not answer within"):
        await listing(CheckpointPlace(url=str(tmp_path)), activities)
    released.set()


async def test_the_target_is_a_durable_step_or_a_marker_of_any_attempt(
    bucket: tuple["S3Client", str], aws_url: str
) -> None:
    look = CheckpointActivities().target_reached
    where = place(bucket, aws_url)

    async def reached(**query: Any) -> bool:
        return bool((await ActivityEnvironment().run(look, TargetQuery(place=where, **query))).reached)

    assert await reached(target=Target(step=100), newest_step=100)
    assert not await reached(target=Target(step=100), newest_step=99)
    assert not await reached(target=Target(step=100))
    marker = Target(marker=f"s3://{bucket[1]}/done/{{attempt}}/DONE")
    assert not await reached(target=marker, attempts=(1, 2))
    bucket[0].put_object(Bucket=bucket[1], Key="done/2/DONE", Body=b"")
    assert await reached(target=marker, attempts=(1, 2))


async def test_a_target_that_may_not_be_looked_at_is_not_told_as_missed(refusing: Any) -> None:
    where = CheckpointPlace(url="s3://runs/run", region=REGION, endpoint=refusing[1])
    query = TargetQuery(place=where, target=Target(marker="s3://runs/DONE"))
    with pytest.raises(PassingError, match=r"Forbidden|403|AccessDenied"):
        await ActivityEnvironment().run(CheckpointActivities().target_reached, query)
