from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from prometheus_client import generate_latest

from health.agent import NodeAgent
from health.publisher import Publisher
from sickbay.gpu_readings import EccCounts, LinkAnswer, NvmlAnswer
from tests.health.test_agent import PCIS, Node
from workers.node_metrics import node_registry


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[NodeAgent]:
    node = Node(tmp_path)
    links = tuple(LinkAnswer(index=index, active=index != 3) for index in range(18))
    node.nvml.answer = node.nvml.healthy(
        temperature=41, links=links, ecc_volatile=EccCounts(uncorrected=0), remap_pending=False
    )
    async with node.agent() as running:
        yield running


def page(agent: NodeAgent) -> list[str]:
    publisher = cast(Publisher, SimpleNamespace(problem=""))
    return generate_latest(node_registry(agent, publisher)).decode().splitlines()


async def test_each_check_shows_its_result_age_duration_runs_and_leaked_children(agent: NodeAgent) -> None:
    lines = page(agent)
    assert 'sickbay_node_check_result{check="kernel-log",result="healthy"} 1.0' in lines
    assert 'sickbay_node_check_result{check="nvml",result="unknown"} 0.0' in lines
    assert 'sickbay_node_check_leaked_children{check="nvml"} 0.0' in lines
    assert 'sickbay_node_check_abandoned_runs_total{check="nvml"} 0.0' in lines
    for name in ("sickbay_node_check_seconds", "sickbay_node_check_age_seconds", "sickbay_node_check_runs_total"):
        assert any(line.startswith(f'{name}{{check="nvml"') for line in lines), name


async def test_each_gpu_shows_what_it_told_and_nothing_that_it_did_not(agent: NodeAgent) -> None:
    lines = page(agent)
    labels = f'pci="{PCIS[1]}"'
    mine = [line for line in lines if labels in line]
    assert f'sickbay_gpu_temperature_celsius{{{labels},uuid="GPU-1"}} 41.0' in mine
    assert f'sickbay_gpu_ecc_volatile_uncorrected{{{labels},uuid="GPU-1"}} 0.0' in mine
    assert f'sickbay_gpu_nvlinks{{{labels},state="inactive",uuid="GPU-1"}} 1.0' in mine
    assert f'sickbay_gpu_recovery_action{{action="none",{labels},uuid="GPU-1"}} 1.0' in mine
    assert not any(line.startswith("sickbay_gpu_memory_temperature_celsius{") for line in lines)


async def test_without_an_answer_there_are_no_gpus_and_no_error(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.nvml.answer = NvmlAnswer(silent="no answer in time")
    async with node.agent() as agent:
        assert not any(line.startswith("sickbay_gpu_temperature_celsius{") for line in page(agent))
