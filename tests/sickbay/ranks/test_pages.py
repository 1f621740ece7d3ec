from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.kube_objects import Node
from sickbay.names import ANNOTATION_RANKS
from sickbay.ranks.model import NodeRanks, RankPlace, RankWindow
from sickbay.ranks.pages import page_of, page_url

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def node(url: str = "http://10.0.0.7:9465/ranks", boot_id: str = "boot-1") -> Node:
    addresses = [
        {"type": "InternalIP", "address": "10.0.0.7"},
        {"type": "InternalIP", "address": "fd00::7"},
        {"type": "Hostname", "address": "node-a"},
    ]
    return Node.model_validate(
        {
            "metadata": {"name": "node-a", "annotations": {ANNOTATION_RANKS: url}},
            "status": {"addresses": addresses, "nodeInfo": {"bootID": boot_id}},
        }
    )


@pytest.mark.parametrize("url", ["http://10.0.0.7:9465/ranks", "http://[fd00::7]:80/ranks", "http://127.0.0.1:1/ranks"])
def test_a_node_is_asked_at_its_own_addresses_and_simulated_ones_at_the_loopback(url: str) -> None:
    assert page_url(node(url)) == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "https://10.0.0.7:9465/ranks",
        "file:///etc/passwd",
        "http://169.254.169.254:80/ranks",
        "http://10.0.0.8:9465/ranks",
        "http://node-a:9465/ranks",
        "http://localhost:9465/ranks",
        "http://[::1]:9465/ranks",
        "http://10.0.0.7/ranks",
        "http://10.0.0.7:9465/ranks?to=http://elsewhere",
        "http://10.0.0.7:9465/ranks#more",
        "http://10.0.0.7:9465/admin",
        "http://10.0.0.7:9465/ranks/../admin",
        "http://user@10.0.0.7:9465/ranks",
        "http://10.0.0.7:9465@elsewhere:80/ranks",
        "http://10.0.0.7:99999/ranks",
        "http://10.0.0.7:9465/ranks\r\nHost: x",
        "http://[10.0.0.7:9465/ranks",
        "http://0x7f.1:80/ranks",
    ],
)
def test_no_annotation_makes_the_controller_call_anything_else(url: str) -> None:
    with pytest.raises(ValueError, match=r"page|sickbay\.dev/ranks"):
        page_url(node(url))


@given(st.text(max_size=60))
def test_whatever_is_annotated_is_an_own_address_or_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"page|sickbay\.dev/ranks"):
        page_url(node(text))


def window(job: str = "ml/llama", attempt: int = 1, of_node: str = "node-a") -> RankWindow:
    return RankWindow(
        job=job,
        attempt=attempt,
        place=RankPlace(rank=0),
        node=of_node,
        first_step=0,
        last_step=9,
        first_at=NOW,
        last_at=NOW,
        steps=10,
        step_ms=1000,
        compute_ms=900,
        collective_ms=50,
        data_ms=1,
        checkpoint_ms_total=0,
        tokens=0,
    )


def page(*windows: RankWindow, of_node: str = "node-a", boot_id: str = "boot-1") -> bytes:
    told = NodeRanks(node=of_node, boot_id=boot_id, at=NOW, window=timedelta(minutes=1), windows=windows)
    return told.model_dump_json().encode()


def test_only_the_windows_of_the_attempt_count() -> None:
    text = page(window(), window(attempt=2), window(job="ml/other"), window(of_node="node-b"))
    assert page_of(text, node(), "ml/llama", 1).windows == (window(),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (page(window(), of_node="node-b"), "is of node 'node-b'"),
        (page(window(), boot_id="boot-0"), "another boot"),
        (b"<html>", "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"", "cannot be read"),
    ],
)
def test_a_page_of_another_node_or_boot_or_none_does_not_count(text: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        page_of(text, node(), "ml/llama", 1)


def test_a_node_that_tells_no_boot_is_believed() -> None:
    assert page_of(page(window()), node(boot_id=""), "ml/llama", 1).windows
