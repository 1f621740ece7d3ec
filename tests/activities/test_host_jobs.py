from pathlib import Path

import pytest

from activities.host_jobs import AskCheckpoint, CheckpointAsked, HostJobActivities
from health.rank_reporter import REQUEST_FILE, Reporter
from health.settings import NodeSettings

TAKEN = CheckpointAsked(taken=True)


@pytest.fixture
def host(tmp_path: Path) -> HostJobActivities:
    return HostJobActivities(NodeSettings(node_name="node-a", rank_dir=tmp_path / "ranks"))


@pytest.fixture
def reporter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reporter:
    """A rank of the job that has reported a step."""
    monkeypatch.setenv("SICKBAY_JOB", "ml/llama")
    monkeypatch.setenv("SICKBAY_ATTEMPT", "2")
    monkeypatch.setenv("SICKBAY_RANK_DIR", str(tmp_path / "ranks"))
    reporter = Reporter.from_environment(rank=0)
    reporter.step(1)
    reporter.close(10)
    return reporter


def ask(request_id: str = "incident-1", job: str = "ml/llama", attempt: int = 2) -> AskCheckpoint:
    return AskCheckpoint(job=job, attempt=attempt, request_id=request_id)


async def test_a_request_reaches_the_ranks_of_that_attempt_and_may_be_repeated(
    host: HostJobActivities, reporter: Reporter
) -> None:
    assert await host.ask_checkpoint(ask()) == TAKEN
    assert reporter.checkpoint_requested()
    reporter.checkpoint_done(1)
    assert await host.ask_checkpoint(ask()) == TAKEN
    assert not reporter.checkpoint_requested()
    assert await host.ask_checkpoint(ask("incident-2")) == TAKEN
    assert reporter.checkpoint_requested()


async def test_a_request_is_withdrawn_but_no_other_that_came_after_it(
    host: HostJobActivities, reporter: Reporter
) -> None:
    await host.ask_checkpoint(ask("incident-2"))
    assert not (await host.withdraw_request(ask("incident-1"))).taken
    assert reporter.checkpoint_requested()
    assert not (await host.withdraw_request(ask("incident-2"))).taken
    assert not reporter.checkpoint_requested()
    assert not (await host.withdraw_request(ask("incident-2"))).taken


@pytest.mark.parametrize("other", [ask(attempt=3), ask(job="ml/other"), ask(job="../.."), ask(job="ml/..")])
async def test_where_no_rank_has_reported_the_request_is_not_taken(
    host: HostJobActivities, reporter: Reporter, other: AskCheckpoint
) -> None:
    answer = await host.ask_checkpoint(other)
    assert not answer.taken
    assert "no rank" in answer.why


async def test_a_link_in_the_folders_place_leads_nowhere(
    host: HostJobActivities, reporter: Reporter, tmp_path: Path
) -> None:
    attempt = tmp_path / "ranks" / "ml_llama" / "2"
    attempt.rename(tmp_path / "moved")
    attempt.symlink_to(tmp_path / "moved")
    answer = await host.ask_checkpoint(ask())
    assert not answer.taken
    assert "cannot be written" in answer.why
    assert not (tmp_path / "moved" / REQUEST_FILE).exists()


async def test_a_link_in_the_files_place_is_replaced_and_not_written_through(
    host: HostJobActivities, reporter: Reporter, tmp_path: Path
) -> None:
    folder = tmp_path / "ranks" / "ml_llama" / "2"
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    for name in (REQUEST_FILE, f".{REQUEST_FILE}.new"):
        (folder / name).symlink_to(victim)
    assert await host.ask_checkpoint(ask()) == TAKEN
    assert victim.read_text() == "untouched"
    assert (folder / REQUEST_FILE).read_text() == "incident-1\n"


async def test_a_folder_in_the_files_place_is_told(host: HostJobActivities, reporter: Reporter, tmp_path: Path) -> None:
    (tmp_path / "ranks" / "ml_llama" / "2" / REQUEST_FILE / "more").mkdir(parents=True)
    assert not (await host.ask_checkpoint(ask())).taken


@pytest.mark.parametrize("request_id", ["", "two\nlines", "x" * 300])
def test_an_id_that_is_no_single_word_is_refused(request_id: str) -> None:
    with pytest.raises(ValueError, match="request_id"):
        ask(request_id)
