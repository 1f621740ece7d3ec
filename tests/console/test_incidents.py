"""The people's commands, typed as people type them, against a real server and a stand-in for the incident."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from console import temporal_desk
from console.errors import UserError
from console.incident_text import deadline, length
from console.main import run
from sickbay import catalogue, names, search_attributes
from sickbay.faults import Component, ComponentKind
from sickbay.incident import FaultReport, IncidentInput
from sickbay.nodes import NodeRef
from sickbay.policy.model import IncidentPolicy
from tests.eventually import eventually
from tests.incident_stand_in import StandInIncident

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass
class Typed:
    """What a command line led to."""

    code: int
    out: str
    err: str


@dataclass
class Desk:
    """A server with one open incident, and a keyboard."""

    client: Client
    node: NodeRef
    keyboard: pytest.CaptureFixture[str]

    @property
    def incident(self) -> str:
        return names.incident_id(self.node.cluster, self.node.machine)

    @property
    def handle(self) -> WorkflowHandle[object, object]:
        return self.client.get_workflow_handle(self.incident)

    async def type(self, *words: str) -> Typed:
        self.keyboard.readouterr()
        code = await asyncio.to_thread(run, ["incidents", *words])
        out, err = self.keyboard.readouterr()
        return Typed(code, out, err)


@pytest.fixture
async def desk(
    dev_server: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[Desk]:
    client = dev_server.client
    monkeypatch.setenv("TEMPORAL_ADDRESS", client.service_client.config.target_host)
    monkeypatch.setenv("TEMPORAL_NAMESPACE", client.namespace)
    token = uuid4().hex[:8]
    node = NodeRef(
        cluster=f"lab-{token}", name=f"node-{token}", uid=token, provider_id=f"aws:///a/i-{token}", pool="p5"
    )
    made = Desk(client, node, capsys)
    async with Worker(client, task_queue=names.CONTROLLER_QUEUE, workflows=[StandInIncident], max_cached_workflows=10):
        await open_incident(made)
        yield made


async def open_incident(desk: Desk) -> None:
    fault = catalogue.fault_of("xid-79", Component(kind=ComponentKind.GPU, id="0000:61:00"))
    fault = fault.model_copy(update={"evidence": ("NVRM: GPU at 0000:61:00 is gone",)})
    await desk.client.start_workflow(
        names.WORKFLOW_INCIDENT,
        IncidentInput(node=desk.node, policy=IncidentPolicy(), catalogue_version="1", opened_at=NOW, faults=(fault,)),
        id=desk.incident,
        task_queue=names.CONTROLLER_QUEUE,
        start_signal=names.SIGNAL_REPORT_FAULTS,
        start_signal_args=[FaultReport(faults=(fault,), observed_at=NOW)],
        search_attributes=TypedSearchAttributes(
            [
                SearchAttributePair(search_attributes.NODE, desk.node.name),
                SearchAttributePair(search_attributes.MACHINE, desk.node.machine),
                SearchAttributePair(search_attributes.STAGE, "awaiting_approval"),
            ]
        ),
    )
    await eventually(lambda: _listed(desk))


async def _listed(desk: Desk) -> bool:
    found = [each async for each in desk.client.list_workflows(f"WorkflowId = '{desk.incident}'")]
    return bool(found)


async def test_list_shows_where_incidents_stand_and_until_when_they_wait(desk: Desk) -> None:
    shown = await desk.type("list", "--cluster", desk.node.cluster)
    assert shown.code == 0
    for word in (desk.node.name, "xid-79", "awaiting_approval", "a person's yes to replace", "2026-03-01 20:00:00Z"):
        assert word in shown.out


async def test_list_as_json_is_for_programs(desk: Desk) -> None:
    rows = json.loads((await desk.type("list", "--cluster", desk.node.cluster, "--json")).out)
    assert [(row["incident_id"], row["faults"], row["answers"]) for row in rows] == [(desk.incident, ["xid-79"], True)]


async def test_list_says_so_when_nothing_is_open(desk: Desk) -> None:
    shown = await desk.type("list", "--cluster", "elsewhere")
    assert (shown.code, shown.out) == (0, "No incident is open.\n")


@pytest.mark.parametrize(
    "word", [lambda desk: desk.incident, lambda desk: desk.node.name, lambda desk: desk.node.machine]
)
async def test_show_finds_an_incident_by_id_node_or_instance(desk: Desk, word: Callable[[Desk], str]) -> None:
    shown = await desk.type("show", word(desk))
    assert shown.code == 0
    for part in (desk.incident, "NVRM: GPU at 0000:61:00 is gone", "sickbay incidents approve", "opened"):
        assert part in shown.out


async def test_show_as_json_is_the_whole_view(desk: Desk) -> None:
    view = json.loads((await desk.type("show", desk.incident, "--json")).out)
    assert view["verdict"]["class"] == "gpu"
    assert view["stage"] == "awaiting_approval"


async def test_an_approval_is_pinned_to_the_rung_that_is_asked_for(desk: Desk) -> None:
    said = await desk.type("approve", desk.node.name, "--reason", "spare is up", "--by", "ada")
    assert (said.code, said.err) == (0, "")
    assert "approve by ada" in said.out
    assert "stage" not in said.out  # the reply's is the one before the order took effect


async def test_a_mismatched_approval_is_refused_in_the_incidents_own_words(desk: Desk) -> None:
    said = await desk.type("approve", desk.node.name, "--rung", "reboot", "--reason", "x")
    assert said.code == temporal_desk.REFUSED
    assert said.err == "sickbay: refused: reboot is not what waits: replace is\n"


async def test_a_repeated_order_counts_once(desk: Desk) -> None:
    for _ in range(2):
        said = await desk.type("hold", desk.node.name, "--reason", "look", "--by", "ada", "--request-id", "r1")
        assert said.code == 0
    shown = await desk.type("show", desk.incident)
    assert shown.out.count("hold by ada") == 1


@pytest.mark.parametrize("words", [("reject",), ("release",), ("choose-rung", "reboot"), ("hold",)])
async def test_every_order_reaches_the_incident(desk: Desk, words: tuple[str, ...]) -> None:
    order, *rest = words
    said = await desk.type(order, desk.node.name, *rest, "--reason", "because", "--by", "ada")
    assert said.code == 0
    assert f"{order.replace('-', '_')} by ada" in said.out


async def test_the_name_of_the_person_is_the_systems_unless_given(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "grace")
    assert "hold by grace" in (await desk.type("hold", desk.node.name, "--reason", "look")).out


async def test_an_order_without_a_reason_is_not_sent(desk: Desk) -> None:
    said = await desk.type("approve", desk.node.name)
    assert said.code == 2
    assert "--reason" in said.err


async def test_an_order_to_an_incident_that_is_over_says_how_it_ended(desk: Desk) -> None:
    assert (await desk.type("withdraw", desk.node.name, "--reason", "false alarm")).code == 0
    await desk.handle.result()
    said = await desk.type("approve", desk.incident, "--reason", "late")
    assert said.code == temporal_desk.REFUSED
    assert "is over already" in said.err
    shown = await desk.type("show", desk.incident)
    assert "withdrawn" in shown.out


async def test_an_unknown_incident_is_one_clear_line(desk: Desk) -> None:
    for wanted in ("incident-lab-nobody", "nobody"):
        said = await desk.type("show", wanted)
        assert said.code == 2
        assert wanted in said.err
        assert said.err.count("\n") == 1


async def test_what_cannot_be_a_name_is_not_put_into_a_query(desk: Desk) -> None:
    said = await desk.type("show", "x' OR '1'='1")
    assert said.code == 2
    assert "no incident id" in said.err


async def test_an_incident_that_no_controller_speaks_for_is_told_so(
    dev_server: WorkflowEnvironment, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(temporal_desk, "ANSWER_TIMEOUT", timedelta(seconds=1))
    orphan = Desk(desk.client, desk.node.model_copy(update={"provider_id": None}), desk.keyboard)
    await dev_server.client.start_workflow(
        names.WORKFLOW_INCIDENT,
        IncidentInput(node=orphan.node, policy=IncidentPolicy(), catalogue_version="1", opened_at=NOW),
        id=orphan.incident,
        task_queue=f"nobody-{uuid4().hex}",
    )
    said = await orphan.type("hold", orphan.incident, "--reason", "look", "--request-id", "r2")
    assert said.code == 2
    assert "no controller answered" in said.err
    assert "--request-id r2" in said.err
    await orphan.handle.terminate()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere.invalid:7233", "http://127.0.0.1:7233"])
async def test_no_server_is_one_line_with_the_address_and_the_cure(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", address)
    code = await asyncio.to_thread(run, ["incidents", "list"])
    said = capsys.readouterr().err
    assert code == 2
    assert said.count("\n") == 1
    assert address in said
    assert "TEMPORAL_ADDRESS" in said
    assert "tonic" not in said  # the transport's own words


async def test_a_server_that_goes_away_is_told_as_such(desk: Desk) -> None:
    with pytest.raises(UserError, match=r"does not answer any more: .*try again"):
        async with temporal_desk.temporal():
            raise RPCError("tcp connect error", RPCStatusCode.UNAVAILABLE, b"")


def test_durations_are_told_in_their_two_largest_units() -> None:
    assert length(timedelta(seconds=42)) == "42 s"
    assert length(timedelta(minutes=5, seconds=3)) == "5 min 3 s"
    assert length(timedelta(hours=7, minutes=12)) == "7 h 12 min"
    assert length(timedelta(days=2, hours=3)) == "2 d 3 h"


def test_a_deadline_says_what_is_left_of_it() -> None:
    assert deadline(NOW + timedelta(hours=1), NOW) == "2026-03-01 13:00:00Z (in 1 h 0 min)"
    assert deadline(NOW - timedelta(hours=1), NOW) == "2026-03-01 11:00:00Z (past)"
    assert deadline(None, NOW) == ""
