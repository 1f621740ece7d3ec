"""Today's workflows go on with yesterday's incidents: every recorded branch replays, argument by argument."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.replay.replaying import HISTORIES, differences, names, recorded_history
from tests.replay.stories import STORIES

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", names())
async def test_a_recorded_history_replays_with_the_same_arguments(name: str) -> None:
    assert await differences(recorded_history(name)) == []


async def test_a_call_with_another_argument_is_told() -> None:
    history = recorded_history("node_gone")
    scheduled = next(event for event in history.events if event.HasField("activity_task_scheduled_event_attributes"))
    arguments = scheduled.activity_task_scheduled_event_attributes.input.payloads[0]
    arguments.data = arguments.data.replace(b"uid-1", b"uid-2")
    assert len(await differences(history)) == 1


def test_every_story_is_recorded_and_every_history_is_of_a_story() -> None:
    recorded = {name.split("~")[0] for name in names()}
    assert recorded == set(STORIES), f"record what is missing: see {HISTORIES.parent / 'README.md'}"


@pytest.mark.parametrize("seed", ["1", "2"])
def test_histories_replay_under_any_hash_seed(seed: str) -> None:
    replayed = subprocess.run(
        [sys.executable, "-m", "tests.replay.replaying"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert replayed.returncode == 0, replayed.stderr
