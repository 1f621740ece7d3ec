"""Registration with a real server, and with one that refuses."""

from datetime import timedelta
from unittest.mock import AsyncMock, Mock
from uuid import uuid4

from google.protobuf.duration_pb2 import Duration
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesResponse
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment

from sickbay import search_attributes
from workers.search_attributes import Registration, register_search_attributes

REFUSED = RPCError("not allowed here", RPCStatusCode.PERMISSION_DENIED, b"")


async def test_a_bare_namespace_gets_every_attribute_and_a_second_time_changes_nothing(
    dev_server: WorkflowEnvironment,
) -> None:
    namespace = f"bare-{uuid4()}"
    retention = Duration()
    retention.FromTimedelta(timedelta(days=1))
    await dev_server.client.workflow_service.register_namespace(
        RegisterNamespaceRequest(namespace=namespace, workflow_execution_retention_period=retention)
    )
    address = dev_server.client.service_client.config.target_host
    client = await Client.connect(address, namespace=namespace)
    assert await register_search_attributes(client) == Registration()
    assert await register_search_attributes(client) == Registration()


async def test_a_refusal_names_what_is_missing_and_the_cure() -> None:
    client = _client(listed=ListSearchAttributesResponse())
    registration = await register_search_attributes(client)
    assert search_attributes.MACHINE.name in registration.missing
    assert "not allowed here" in registration.refusal
    assert "SickbayMachine=Keyword" in registration.refusal
    assert "SickbayFault=KeywordList" in registration.refusal


async def test_a_server_that_may_not_even_be_asked_misses_all() -> None:
    registration = await register_search_attributes(_client(listed=REFUSED))
    assert set(registration.missing) == {
        key.name for key in (*search_attributes.KEYWORDS, *search_attributes.KEYWORD_LISTS)
    }


async def test_a_refusal_is_none_where_everything_was_there_before() -> None:
    everything = ListSearchAttributesResponse(
        custom_attributes=dict.fromkeys(
            (key.name for key in (*search_attributes.KEYWORDS, *search_attributes.KEYWORD_LISTS)),
            IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
        )
    )
    assert await register_search_attributes(_client(listed=everything)) == Registration()


def _client(*, listed: ListSearchAttributesResponse | RPCError) -> Client:
    """A client whose server refuses every addition."""
    client = Mock(spec=Client, namespace="prod")
    answer = {"side_effect": listed} if isinstance(listed, RPCError) else {"return_value": listed}
    client.operator_service.list_search_attributes = AsyncMock(**answer)
    client.operator_service.add_search_attributes = AsyncMock(side_effect=REFUSED)
    return client
