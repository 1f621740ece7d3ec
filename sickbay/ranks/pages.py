"""Which URL of a node's annotation may be fetched, and what of the answer counts.

Called by `activities.job_ranks`. Whoever may annotate a node must not be able to make the controller call whatever he
likes: only the node itself is asked, at a literal address of its own, for the one page.
"""

from ipaddress import IPv4Network, ip_address
from typing import Final
from urllib.parse import urlsplit

from pydantic import ValidationError

from sickbay.kube_objects import Node
from sickbay.names import ANNOTATION_RANKS
from sickbay.ranks.model import NodeRanks

PAGE_PATH: Final = "/ranks"
LOOPBACK: Final = IPv4Network("127.0.0.0/8")
"""Where simulated nodes are."""
URL_MOST: Final = 200


def page_url(node: Node) -> str:
    """Where the page of this node's ranks may be fetched. Raises ValueError, with the reason in words, if nowhere."""
    url = node.metadata.annotations.get(ANNOTATION_RANKS, "")
    if not url:
        raise ValueError("its agent names no page")
    refused = f"{ANNOTATION_RANKS} is {url[:URL_MOST]!r}"
    try:
        parts = urlsplit(url)
        address, port = ip_address(parts.hostname or ""), parts.port
    except ValueError:
        raise ValueError(f"{refused}: not the URL of an address") from None
    host = f"[{address}]" if address.version == 6 else str(address)
    if port is None or url != f"http://{host}:{port}{PAGE_PATH}":
        raise ValueError(f"{refused}: not of the form http://ADDRESS:PORT{PAGE_PATH}")
    own = {entry.address for entry in node.status.addresses if entry.type in ("InternalIP", "ExternalIP")}
    if str(address) not in own and not (address.version == 4 and address in LOOPBACK):
        raise ValueError(f"{refused}: not an address of this node")
    return url


def page_of(text: bytes, node: Node, job: str, attempt: int) -> NodeRanks:
    """The page of this node with the windows of one attempt alone. Raises ValueError for a page that is none, or is of
    another node or another boot."""
    try:
        page = NodeRanks.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(f"the page cannot be read: {error.error_count()} fields are wrong") from None
    if page.node != node.metadata.name:
        raise ValueError(f"the page is of node {page.node[:URL_MOST]!r}")
    boot_id = node.status.node_info.boot_id
    if boot_id and page.boot_id != boot_id:
        raise ValueError("the page is of another boot")
    windows = tuple(
        window for window in page.windows if (window.job, window.attempt, window.node) == (job, attempt, page.node)
    )
    return page.model_copy(update={"windows": windows})
