from datetime import timedelta

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from workers.serving import Health, serve


class Hands:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


async def get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


def test_a_part_that_stops_beating_is_dead_and_one_that_beats_again_is_not() -> None:
    clock = Hands()
    health = Health(monotonic=clock)
    health.beat("agent", timedelta(seconds=10))
    clock.at = 9
    assert health.dead() == ()
    clock.at = 11
    assert health.dead() == ("agent: no sign of life",)
    health.beat("agent", timedelta(seconds=10))
    assert health.dead() == ()


async def test_readiness_names_the_parts_that_are_missing() -> None:
    health = Health()
    health.expect("agent", "temporal")
    async with serve(health, "127.0.0.1", 0, CollectorRegistry()) as (host, port):
        health.ready("agent")
        health.not_ready("temporal", "cannot connect to localhost:7233")
        assert await get(f"http://{host}:{port}/readyz") == (503, "temporal: cannot connect to localhost:7233\n")
        assert await get(f"http://{host}:{port}/healthz") == (200, "ok\n")
        health.ready("temporal")
        assert await get(f"http://{host}:{port}/readyz") == (200, "ok\n")


async def test_metrics_are_those_of_the_registry() -> None:
    registry = CollectorRegistry()
    Counter("sickbay_test_things", "Things.", registry=registry).inc(3)
    async with serve(Health(), "127.0.0.1", 0, registry) as (host, port):
        status, text = await get(f"http://{host}:{port}/metrics")
    assert status == 200
    assert "sickbay_test_things_total 3.0" in text


async def test_an_address_in_use_is_an_error_at_start() -> None:
    async with serve(Health(), "127.0.0.1", 0, CollectorRegistry()) as (host, port):
        with pytest.raises(OSError, match="address already in use"):
            async with serve(Health(), host, port, CollectorRegistry()):
                pass


async def test_further_pages_are_made_anew_for_each_request_and_say_why_there_is_none() -> None:
    answers = [b'{"step": 1}', b'{"step": 2}']

    async def ranks() -> bytes:
        if not answers:
            raise LookupError("the disk does not answer")
        return answers.pop(0)

    async with serve(Health(), "127.0.0.1", 0, CollectorRegistry(), {"/ranks": ranks}) as (host, port):
        url = f"http://{host}:{port}/ranks"
        assert await get(url) == (200, '{"step": 1}')
        assert await get(url) == (200, '{"step": 2}')
        assert await get(url) == (503, "the disk does not answer\n")
