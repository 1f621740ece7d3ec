"""The controller's connection to Temporal, which may come late and must not hold up containment.

Used by `workers.controller`, which keeps trying to connect while the watch already contains, and by the commands for
people, which try once. Once made, the SDK mends a connection by itself.
"""

import asyncio
import re
from datetime import timedelta
from typing import Final

import structlog
from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.runtime import Runtime
from temporalio.service import RPCError

from workers.temporal_plugin import temporal_plugin

DEFAULT_ADDRESS: Final = "localhost:7233"
CONNECT_TIMEOUT: Final = timedelta(seconds=10)
FIRST_WAIT: Final = timedelta(seconds=1)
LAST_WAIT: Final = timedelta(seconds=30)

log: Final = structlog.get_logger(__name__)


class TemporalUnreachableError(Exception):
    """Temporal cannot be reached where we were told to look; the message names the place and the cure."""


async def connect(identity: str | None = None, runtime: Runtime | None = None) -> Client:
    """A client as the environment configures it, with our plugin. Raises TemporalUnreachableError."""
    try:
        config = ClientConfig.load_client_connect_config()
    except (RuntimeError, ValueError, OSError) as error:
        raise TemporalUnreachableError(
            f"Temporal's configuration cannot be read ({_one_line(error)}); "
            "see TEMPORAL_CONFIG_FILE and TEMPORAL_PROFILE"
        ) from error
    address = config.setdefault("target_host", DEFAULT_ADDRESS)
    if "://" in address:
        raise TemporalUnreachableError(f"TEMPORAL_ADDRESS: {address} is a URL; write host:port, without its scheme")
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT.total_seconds()):
            return await Client.connect(**config, identity=identity, runtime=runtime, plugins=[temporal_plugin()])
    except (RuntimeError, ValueError, OSError, TimeoutError, RPCError) as error:
        raise TemporalUnreachableError(
            f"no Temporal server answers at {address} ({_one_line(error)}); set TEMPORAL_ADDRESS to host:port, and "
            "TEMPORAL_NAMESPACE and TEMPORAL_API_KEY where the server asks for them"
        ) from error


async def connect_in_the_end(identity: str, runtime: Runtime | None = None) -> Client:
    """A client, however long it takes; each failed try is told in the log."""
    wait = FIRST_WAIT
    while True:
        try:
            return await connect(identity, runtime)
        except TemporalUnreachableError as error:
            log.warning("incidents wait for Temporal", error=str(error), wait_s=wait.total_seconds())
        await asyncio.sleep(wait.total_seconds())
        wait = min(wait * 2, LAST_WAIT)


def _one_line(error: Exception) -> str:
    """What went wrong, without the layers of the transport that each repeat it."""
    told = " ".join(str(error).split()) or type(error).__name__
    inner = re.findall(r'(?:message|error): "([^"]+)"', told)
    return (inner[-1] if inner else told).lower()
