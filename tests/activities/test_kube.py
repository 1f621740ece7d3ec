from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from activities.errors import FinalError, PassingError
from activities.kube import ClusterAccessError, NotFoundError, call, connect, list_all, path
from sickbay.kube_objects import Node

NODES = "/api/v1/nodes"

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: here, context: {cluster: c, user: u}}]
"""


class Server:
    """An API server that answers each request with the next of some prepared answers."""

    def __init__(self, *answers: web.Response) -> None:
        self.seen: list[web.Request] = []
        self._answers = list(answers)
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        self._server = TestServer(application)

    async def _answer(self, request: web.Request) -> web.Response:
        await request.read()
        self.seen.append(request)
        return self._answers.pop(0)

    async def __aenter__(self) -> ApiClient:
        await self._server.start_server()
        self._api = ApiClient(Configuration(host=str(self._server.make_url("")).rstrip("/")))
        return self._api

    async def __aexit__(self, *_: object) -> None:
        await self._api.close()  # type: ignore[no-untyped-call]
        await self._server.close()


def node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


def page(*names: str, token: str = "") -> web.Response:
    return web.json_response({"metadata": {"continue": token}, "items": [node(name) for name in names]})


def refusal(code: int, headers: Mapping[str, str] | None = None, **status: Any) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, **status}, status=code, headers=headers)


async def test_a_list_is_read_to_its_last_page() -> None:
    server = Server(page("a", "b", token="next"), page("c"))
    async with server as api:
        listed = await list_all(api, NODES, Node, query={"labelSelector": "pool=p5"})
    assert [each.metadata.name for each in listed] == ["a", "b", "c"]
    assert [request.query.get("continue") for request in server.seen] == [None, "next"]
    assert {request.query["labelSelector"] for request in server.seen} == {"pool=p5"}


async def test_a_list_whose_continuation_expired_is_begun_again() -> None:
    async with Server(page("a", token="next"), refusal(410, reason="Expired"), page("b")) as api:
        assert [each.metadata.name for each in await list_all(api, NODES, Node)] == ["b"]


async def test_a_list_that_expires_each_time_passes_the_error_on() -> None:
    async with Server(*(refusal(410, reason="Expired") for _ in range(3))) as api:
        with pytest.raises(PassingError, match="410"):
            await list_all(api, NODES, Node)


async def test_writes_carry_our_field_manager_and_reads_do_not() -> None:
    server = Server(web.json_response(node("a")), web.json_response(node("a")))
    async with server as api:
        await call(api, "PATCH", path(NODES, "a"), Node, body={"metadata": {}})
        await call(api, "GET", path(NODES, "a"), Node)
    patch, get = server.seen
    assert (patch.query["fieldManager"], patch.content_type) == ("sickbay", "application/merge-patch+json")
    assert "fieldManager" not in get.query


@pytest.mark.parametrize(
    ("answer", "after"),
    [
        (refusal(429, headers={"Retry-After": "3"}), timedelta(seconds=3)),
        (refusal(429, details={"retryAfterSeconds": 10}), timedelta(seconds=10)),
        (refusal(503, headers={"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}), None),
        (refusal(503), None),
    ],
)
async def test_a_wait_that_the_server_asks_for_is_passed_on(answer: web.Response, after: timedelta | None) -> None:
    async with Server(answer) as api:
        with pytest.raises(PassingError) as caught:
            await call(api, "GET", NODES, Node)
    assert caught.value.next_retry_delay == after


async def test_only_a_status_that_names_the_object_means_that_it_is_gone() -> None:
    async with Server(
        refusal(404, reason="NotFound", details={"name": "a", "kind": "nodes"}),
        web.Response(status=404, text="404 page not found"),
        refusal(404, reason="NotFound", message="the server could not find the requested resource"),
    ) as api:
        with pytest.raises(NotFoundError):
            await call(api, "GET", path(NODES, "a"), Node)
        for _ in range(2):
            with pytest.raises(FinalError) as caught:
                await call(api, "GET", path(NODES, "a"), Node)
            assert not isinstance(caught.value, NotFoundError)


@pytest.mark.parametrize("text", ["<html>sign in</html>", "{}", '{"metadata": 3}', ""])
async def test_an_answer_of_another_shape_is_no_answer(text: str) -> None:
    async with Server(web.Response(text=text)) as api:
        with pytest.raises(PassingError, match="is no Node"):
            await call(api, "GET", NODES, Node)


async def test_null_means_absent() -> None:
    raw = {"metadata": {"name": "a", "labels": None, "managedFields": None}, "spec": None}
    async with Server(web.json_response(raw)) as api:
        assert (await call(api, "GET", NODES, Node)).metadata.labels == {}


def test_a_path_holds_whatever_its_segments_hold() -> None:
    assert path(NODES, "a/../b?c") == "/api/v1/nodes/a%2F..%2Fb%3Fc"


async def test_a_kubeconfig_file_leads_to_its_cluster(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(KUBECONFIG)
    async with await connect(file) as api:
        assert api.configuration.host == "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("text", "context"),
    [
        pytest.param(None, None, id="missing"),
        pytest.param("", None, id="empty"),
        pytest.param("{", None, id="no YAML"),
        pytest.param("just words", None, id="no mapping"),
        pytest.param(KUBECONFIG, "elsewhere", id="unknown context"),
        pytest.param(KUBECONFIG.replace("cluster: c,", "cluster: d,"), None, id="unknown cluster"),
    ],
)
async def test_a_kubeconfig_that_leads_nowhere_is_told_in_one_line(
    tmp_path: Path, text: str | None, context: str | None
) -> None:
    file = tmp_path / "config"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ClusterAccessError) as caught:
        await connect(file, context)
    message = str(caught.value)
    assert str(file) in message
    assert "\n" not in message


async def test_without_a_kubeconfig_outside_a_cluster_the_cure_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr("kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    with pytest.raises(ClusterAccessError, match="name a readable kubeconfig file"):
        await connect()
