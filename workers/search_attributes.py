"""Registration of our search attributes with the server, by the program itself where the server lets it.

Called by the controller before it starts anything: a workflow start that names an unknown attribute is refused whole.
Adding one twice is accepted (facts: Temporal, 1.5). Temporal Cloud lets only its own tools do it, hence the report.
"""

from datetime import timedelta
from typing import Final

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError

from sickbay import search_attributes
from sickbay.model import Frozen

RPC_TIMEOUT: Final = timedelta(seconds=10)

_TYPES: Final = {
    **{key.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD for key in search_attributes.KEYWORDS},
    **{key.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST for key in search_attributes.KEYWORD_LISTS},
}
_WORDS: Final = {
    IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD: "Keyword",
    IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST: "KeywordList",
}


class Registration(Frozen):
    """How the namespace stands after the try."""

    missing: tuple[str, ...] = ()
    """Attributes that the namespace lacks still; incidents cannot start without them."""
    refusal: str = ""
    """One line for a person: what the server said, and the cure."""


async def register_search_attributes(client: Client) -> Registration:
    """Add what the client's namespace lacks of our search attributes. Never raises on a server that refuses."""
    try:
        missing = await missing_search_attributes(client)
        if missing:
            await client.operator_service.add_search_attributes(
                AddSearchAttributesRequest(
                    namespace=client.namespace, search_attributes={name: _TYPES[name] for name in missing}
                ),
                timeout=RPC_TIMEOUT,
            )
    except RPCError as refused:
        return await _refusal(client, refused)
    return Registration()


async def missing_search_attributes(client: Client) -> tuple[str, ...]:
    """Which of our search attributes the client's namespace lacks. Raises RPCError."""
    known = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.namespace), timeout=RPC_TIMEOUT
    )
    return tuple(name for name in _TYPES if name not in known.custom_attributes)


async def _refusal(client: Client, refused: RPCError) -> Registration:
    """What is missing after a refusal; all of it where the server does not even say what it has."""
    try:
        missing = await missing_search_attributes(client)
    except RPCError:
        missing = tuple(_TYPES)
    if not missing:
        return Registration()
    wanted = ", ".join(f"{name}={_WORDS[_TYPES[name]]}" for name in missing)
    cure = f"add them with the namespace's own tool: {wanted}"
    return Registration(
        missing=missing,
        refusal=f"namespace {client.namespace} does not take our search attributes ({refused.message}); {cure}",
    )
