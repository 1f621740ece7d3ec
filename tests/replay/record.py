"""Records the histories that the replay tests replay: `python -m tests.replay.record [STORY ...]`; without one, all.

See README.md beside this for when to. Each story runs on a server of its own; who ran it and where is left out.
"""

import asyncio
import json
import os
import socket
import sys
from typing import Any

from tests.replay.replaying import HISTORIES
from tests.replay.stories import STORIES
from tests.temporal_servers import start_dev_server

SHORT_RUNS = ("--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=80")
"""For the stories that continue as new; the others stay below."""
CONTINUED = ("continued", "trained_for_long")
RECORDER = "recorder"


async def record(name: str) -> None:
    """Tell one story and write its runs: NAME.json, or NAME~1.json and so on where there are several."""
    arguments = SHORT_RUNS if name in CONTINUED else ()
    async with await start_dev_server(*arguments) as environment:
        runs = await STORIES[name](environment)
        for number, run in enumerate(runs, start=1):
            history = json.loads((await run.fetch_history()).to_json())
            file = HISTORIES / (f"{name}~{number}.json" if len(runs) > 1 else f"{name}.json")
            file.write_text(json.dumps(_without_recorder(history), separators=(",", ":")) + "\n", encoding="utf-8")
            sys.stdout.write(f"{file.name}: {len(history['events'])} events\n")
            sys.stdout.flush()


def _without_recorder(part: Any) -> Any:
    """The history without the process and host that recorded it."""
    if isinstance(part, list):
        return [_without_recorder(item) for item in part]
    if isinstance(part, dict):
        return {key: RECORDER if key == "identity" else _without_recorder(value) for key, value in part.items()}
    # A worker's own queue bears the name of its process.
    return part.replace(f"{os.getpid()}@{socket.gethostname()}", RECORDER) if isinstance(part, str) else part


async def _record_all(names: list[str]) -> None:
    for name in names or STORIES:
        await record(name)


if __name__ == "__main__":
    if unknown := [name for name in sys.argv[1:] if name not in STORIES]:
        sys.exit(f"no story is named {', '.join(unknown)}; there are: {', '.join(STORIES)}")
    asyncio.run(_record_all(sys.argv[1:]))
    # The SDK's threads may crash an interpreter that tidies up at its exit (facts: Temporal, 0.10).
    os._exit(0)
