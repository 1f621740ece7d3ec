"""Fetches what the nodes of an attempt tell of its ranks.

Called by the watch of an attempt (`activities.job_watch`); which page may be fetched and counts is decided by
`sickbay.ranks.pages`, what the pages say by `sickbay.ranks.judgement`. A node that does not answer in time has no page:
its ranks are unknown, and nothing waits for it.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Final

import aiohttp
from kubernetes.aio.client import ApiClient

from activities.errors import FinalError, PassingError
from activities.kube import call, path
from activities.node_reads import NODES
from sickbay.kube_objects import Node
from sickbay.ranks.model import NodeRanks
from sickbay.ranks.pages import page_of, page_url
from sickbay.training.attempts import AttemptRef

_log = logging.getLogger(__name__)

PAGE_TIMEOUT: Final = aiohttp.ClientTimeout(total=3)
PAGE_MOST: Final = 1 << 20
"""Bytes of a page; one rank takes some 600."""
NODE_TIMEOUT: Final = 6.0
"""Seconds for one node in all, with reading its object."""
AT_ONCE: Final = 32
NODE_SECONDS: Final = 60.0
"""How long a node's object counts, so that a look at hundreds of nodes does not read them all again."""


class RankPages:
    """The pages of nodes' ranks, over an API client that names the nodes' addresses."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._nodes: dict[str, tuple[float, Node]] = {}

    async def fetch(self, ref: AttemptRef, nodes: Iterable[str]) -> tuple[NodeRanks, ...]:
        """The pages of these nodes with the ranks of this attempt alone, by node; those that could be had.

        Takes seconds as a rule, and at most `NODE_TIMEOUT` for each `AT_ONCE` of nodes, if none answers.
        """
        names = sorted(set(nodes))
        places = asyncio.Semaphore(AT_ONCE)
        # No proxy of the environment, no cookies, no connection kept: each page is one short call to one node.
        connector = aiohttp.TCPConnector(limit=AT_ONCE, force_close=True)
        async with aiohttp.ClientSession(
            timeout=PAGE_TIMEOUT, connector=connector, cookie_jar=aiohttp.DummyCookieJar()
        ) as session:
            pages = await asyncio.gather(*(self._page(session, places, ref, name) for name in names))
        return tuple(page for page in pages if page is not None)

    async def _page(
        self, session: aiohttp.ClientSession, places: asyncio.Semaphore, ref: AttemptRef, name: str
    ) -> NodeRanks | None:
        async with places:
            try:
                async with asyncio.timeout(NODE_TIMEOUT):
                    node = await self._node(name)
                    return page_of(await _read(session, page_url(node)), node, ref.full_job, ref.attempt)
            except (ValueError, PassingError, FinalError, aiohttp.ClientError, TimeoutError, OSError) as error:
                self._nodes.pop(name, None)
                _log.info("no ranks' page of node %s: %s", name, str(error) or type(error).__name__)
                return None

    async def _node(self, name: str) -> Node:
        read_at, node = self._nodes.get(name, (-NODE_SECONDS, None))
        if node is None or time.monotonic() - read_at > NODE_SECONDS:
            node = await call(self._api, "GET", path(NODES, name), Node)
            self._nodes = {each: known for each, known in self._nodes.items() if _is_young(known[0])}
            self._nodes[name] = (time.monotonic(), node)
        return node


def _is_young(read_at: float) -> bool:
    return time.monotonic() - read_at <= NODE_SECONDS


async def _read(session: aiohttp.ClientSession, url: str) -> bytes:
    """The page's text. Raises ValueError for a refusal, a redirection or a page that is too long, else aiohttp's."""
    async with session.get(url, allow_redirects=False) as answer:
        if answer.status != 200:
            raise ValueError(f"{url} answers {answer.status}")
        text = bytearray()
        async for piece in answer.content.iter_chunked(1 << 16):
            text += piece
            if len(text) > PAGE_MOST:
                raise ValueError(f"{url} answers more than {PAGE_MOST} bytes")
        return bytes(text)
