"""What the node's own worker does for the training jobs on it: asks their ranks for a checkpoint, and takes that back.

Called by the training workflow on the queue `sickbay.names.node_queue`. The request is a file beside the ranks' reports
(`health.rank_reporter` says how scripts heed it). Whether a checkpoint came of it is for the workflow to see.
"""

import asyncio
import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic import Field
from temporalio import activity

from health.settings import NodeSettings
from sickbay.model import Frozen

REQUEST_FILE: Final = "checkpoint-now"
"""As in `health.rank_reporter`, which imports nothing of ours."""
_SCRATCH: Final = ".checkpoint-now.new"
_JOB: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class AskCheckpoint(Frozen):
    """Ask the ranks of an attempt on this node to checkpoint now, or take such a request back."""

    job: str
    """`namespace/name`."""
    attempt: int = Field(ge=1)
    request_id: str = Field(min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$")
    """The same id is the same request: a rank that has answered it does not answer it again."""


class CheckpointAsked(Frozen):
    """What came of it."""

    taken: bool
    """Whether the file stands where the attempt's ranks on this node look. They may not."""
    why: str = ""
    """Why it does not, in words."""


class HostJobActivities:
    """The activities of one host for the jobs on it."""

    def __init__(self, settings: NodeSettings) -> None:
        self._folder = settings.rank_dir

    @activity.defn
    async def ask_checkpoint(self, request: AskCheckpoint) -> CheckpointAsked:
        """Put the request where the ranks see it, durably. Repeats change nothing."""
        return await asyncio.to_thread(self._ask, request)

    @activity.defn
    async def withdraw_request(self, request: AskCheckpoint) -> CheckpointAsked:
        """Take this request away, but no other that has come after it."""
        return await asyncio.to_thread(self._withdraw, request)

    def _ask(self, request: AskCheckpoint) -> CheckpointAsked:
        try:
            with _attempt_folder(self._folder, request) as folder:
                if _standing(folder) != request.request_id:
                    _write(folder, request.request_id)
        except FileNotFoundError:
            return CheckpointAsked(taken=False, why="no rank of this attempt has reported on this node")
        except OSError as error:
            return CheckpointAsked(taken=False, why=f"the file cannot be written: {error.strerror or error}")
        return CheckpointAsked(taken=True)

    def _withdraw(self, request: AskCheckpoint) -> CheckpointAsked:
        try:
            with _attempt_folder(self._folder, request) as folder:
                if _standing(folder) == request.request_id:
                    os.unlink(REQUEST_FILE, dir_fd=folder)
                    os.fsync(folder)
        except FileNotFoundError:
            return CheckpointAsked(taken=False)
        except OSError as error:
            return CheckpointAsked(taken=True, why=f"the file cannot be removed: {error.strerror or error}")
        return CheckpointAsked(taken=False)


@contextlib.contextmanager
def _attempt_folder(root: Path, request: AskCheckpoint) -> Iterator[int]:
    """The attempt's folder, opened step by step: pods made it, and a link in it must not lead us elsewhere.

    Raises OSError, FileNotFoundError also for a name that no job can have.
    """
    if not _JOB.fullmatch(request.job):
        raise FileNotFoundError(request.job)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.ExitStack() as stack:
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, folder)
        for name in (request.job.replace("/", "_"), str(request.attempt)):
            folder = os.open(name, flags, dir_fd=folder)
            stack.callback(os.close, folder)
        yield folder


def _standing(folder: int) -> str:
    """The request that stands there; empty if none does that can be read."""
    try:
        file = os.open(REQUEST_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return ""
    try:
        return os.read(file, 1024).decode(errors="replace").strip()
    except OSError:
        return ""
    finally:
        os.close(file)


def _write(folder: int, request_id: str) -> None:
    """The whole new text in place of the old one, readable for ranks of any user."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_SCRATCH, dir_fd=folder)
    file = os.open(_SCRATCH, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=folder)
    try:
        os.fchmod(file, 0o644)
        os.write(file, f"{request_id}\n".encode())
        os.fsync(file)
    finally:
        os.close(file)
    os.replace(_SCRATCH, REQUEST_FILE, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)
