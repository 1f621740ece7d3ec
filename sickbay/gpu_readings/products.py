"""What NVIDIA's products have by their names: NVLinks, what is at their other end, and how they replace bad memory.

Asked by the rules of this package, so that an absent part is not taken for a broken one (facts: detection, 8.16). A
product that is not in the table has an unknown topology, and is judged by what it has shown in this boot.
"""

import re
from enum import StrEnum
from typing import Final

from sickbay.model import Frozen


class Topology(StrEnum):
    """What a GPU's NVLinks lead to."""

    NONE = "none"
    """It has no NVLinks."""
    BRIDGE = "bridge"
    """A plug between neighbours, which may be absent."""
    BOARD = "board"
    """Other GPUs or NVSwitches of the board that it is soldered to."""
    RACK = "rack"
    """NVSwitches that join the GPUs of several machines."""
    UNKNOWN = "unknown"


class Product(Frozen):
    """What a product has."""

    topology: Topology
    links: int | None = None
    """NVLinks at most."""
    remaps_rows: bool | None = None
    """Whether bad memory is replaced by spare rows, as from Ampere on; before that, pages are retired."""
    ecc: bool | None = None
    """Whether it tells of errors of its memory."""

    @property
    def joined(self) -> bool:
        """Its NVLinks are always there."""
        return self.topology in (Topology.BOARD, Topology.RACK)


_UNKNOWN: Final = Product(topology=Topology.UNKNOWN)
_AMPERE_CARD: Final = Product(topology=Topology.NONE, links=0, remaps_rows=True, ecc=True)
_RETIRES_PAGES: Final = Product(topology=Topology.NONE, links=0, remaps_rows=False, ecc=True)
_SHARE: Final = Product(topology=Topology.NONE, links=0, ecc=False)
"""A virtual GPU: of memory and links its guest is told nothing, which the host judges."""

_SHARE_NAME: Final = re.compile(r"-\d+[ABCQV]4?$")
"""How NVIDIA names the profiles of virtual GPUs, e.g. `NVIDIA L4-3Q`, `GRID A100-1-5C`."""


def _board(links: int) -> Product:
    return Product(topology=Topology.BOARD, links=links, remaps_rows=True, ecc=True)


def _rack(links: int) -> Product:
    return Product(topology=Topology.RACK, links=links, remaps_rows=True, ecc=True)


def _bridged(links: int) -> Product:
    return Product(topology=Topology.BRIDGE, links=links, remaps_rows=True, ecc=True)


_PRODUCTS: Final[tuple[tuple[frozenset[str], Product], ...]] = tuple(
    (frozenset(words.split()), product)
    for words, product in (
        # The first row whose words are all in the name holds: forms of a product stand before the product.
        ("gb200", _rack(18)),
        ("gb300", _rack(18)),
        ("b200", _board(18)),
        ("b300", _board(18)),
        ("h200 nvl", _bridged(18)),
        ("h200", _board(18)),
        ("h20", _board(18)),
        ("h100 pcie", _bridged(18)),
        ("h100 nvl", _bridged(18)),
        ("h100 hbm3", _board(18)),
        ("h100 sxm5", _board(18)),
        ("a100 pcie", _bridged(12)),
        ("a100 sxm4", _board(12)),
        ("a100 sxm", _board(12)),
        ("a800 sxm4", _board(8)),
        ("h800 pcie", _bridged(8)),
        ("h800", _board(8)),
        ("a30", _bridged(4)),
        ("a40", _bridged(4)),
        ("a10", _AMPERE_CARD),
        ("a10g", _AMPERE_CARD),
        ("l4", _AMPERE_CARD),
        ("l40", _AMPERE_CARD),
        ("l40s", _AMPERE_CARD),
        ("v100 sxm2", Product(topology=Topology.BOARD, links=6, remaps_rows=False, ecc=True)),
        ("v100 pcie", _RETIRES_PAGES),
        ("p100 pcie", _RETIRES_PAGES),
        ("t4", _RETIRES_PAGES),
        ("t4g", _RETIRES_PAGES),
    )
)
"""NVLinks by NVIDIA's data sheets of these products."""


def product_of(name: str) -> Product:
    """The product of this name, as NVML gives it, e.g. `NVIDIA A100-SXM4-40GB`."""
    if is_share(name):
        return _SHARE
    words = frozenset(re.findall(r"[a-z0-9]+", name.lower()))
    return next((product for wanted, product in _PRODUCTS if wanted <= words), _UNKNOWN)


def is_share(name: str) -> bool:
    """Whether this is a virtual GPU, which may be a fraction of one that other machines use too."""
    return _SHARE_NAME.search(name.strip()) is not None
