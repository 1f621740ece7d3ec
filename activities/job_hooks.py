"""Asks pods for a checkpoint by the HTTP hook that their job names.

Called by `activities.jobs`. Every pod is asked once, many at a time; an answer's body is not read, no redirection is
followed, and a pod that does not answer holds nobody up for longer than its own few seconds.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

import aiohttp

from sickbay.training.job import CheckpointHook

POST_TIMEOUT: Final = aiohttp.ClientTimeout(total=5)
AT_ONCE: Final = 128


async def post(addresses: Iterable[str], hook: CheckpointHook) -> tuple[int, str]:
    """How many pods took the request, and why another one did not, in words."""
    places = asyncio.Semaphore(AT_ONCE)
    connector = aiohttp.TCPConnector(limit=AT_ONCE, force_close=True)
    async with aiohttp.ClientSession(
        timeout=POST_TIMEOUT, connector=connector, cookie_jar=aiohttp.DummyCookieJar()
    ) as session:
        refusals = await asyncio.gather(*(_post(session, places, address, hook) for address in addresses))
    return sum(not refusal for refusal in refusals), next(filter(None, refusals), "")


async def _post(session: aiohttp.ClientSession, places: asyncio.Semaphore, address: str, hook: CheckpointHook) -> str:
    """Why a pod did not take it; empty if it did."""
    host = f"[{address}]" if ":" in address else address
    async with places:
        try:
            async with session.post(f"http://{host}:{hook.http_port}{hook.http_path}", allow_redirects=False) as answer:
                return "" if answer.ok and answer.status < 300 else f"{address} answered {answer.status}"
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return f"{address}: {str(error) or type(error).__name__}"[:200]
