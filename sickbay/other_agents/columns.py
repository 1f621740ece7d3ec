"""Reads nodes from the columns of `kubectl get nodes`, its own or chosen ones: one line a node, the heads in capitals.

Called by `sickbay.other_agents.recorded`. The heads are people's own words; what is needed is found by the words GPU
and total, capacity, available or allocatable in them. A column called STATUS may hold anything (often the type of the
last condition); only kubectl's own word NotReady is taken from it.
"""

import re
from collections.abc import Mapping
from typing import Final

from sickbay.kube_objects import Condition, Node
from sickbay.other_agents.described import DescribedNode, UnreadableError
from sickbay.other_agents.gpu_resources import GPU

HEADS: Final = re.compile(r"\A\s*NAME(\s+[A-Z][A-Z0-9_:/.()-]*)+[ \t]*$", re.MULTILINE)

_GAP: Final = re.compile(r"\s{2,}|\t")
_NONE: Final = ("<none>", "<nil>", "-", "")
_TOTAL: Final = ("TOTAL", "CAP", "COUNT")
_OFFERED: Final = ("AVAIL", "ALLOC", "FREE")
_TYPE: Final = ("INSTANCE", "TYPE")
LABEL_TYPE: Final = "node.kubernetes.io/instance-type"


def read_columns(text: str) -> tuple[DescribedNode, ...]:
    """The nodes of a table. Raises UnreadableError if it has no column about GPUs, and no node that is not ready."""
    heads, *lines = (_GAP.split(line.strip()) for line in text.splitlines() if line.strip())
    rows = [(dict(zip(heads, cells, strict=False)), len(cells) == len(heads)) for cells in lines]
    nodes = tuple(_read(row, whole) for row, whole in rows)
    if not nodes:
        raise UnreadableError("the table has no nodes")
    if not any("GPU" in head for head in heads) and not any(node.conditions for node in nodes):
        raise UnreadableError("the table has no column about GPUs")
    return nodes


def _read(row: Mapping[str, str], whole: bool) -> DescribedNode:
    resources = {head: cell for head, cell in row.items() if "GPU" in head}
    total_heads = [head for head in resources if any(word in head for word in _TOTAL)]
    # A single column about GPUs, unless it is one of totals, shows what is offered.
    offered = _first(resources, _OFFERED) or ("" if total_heads else next(iter(resources.values()), ""))
    total = _first(resources, _TOTAL) or offered
    if offered in _NONE[:-1] and total not in _NONE:
        offered = "0"
    gaps = () if whole else ("a line of the table has not all columns",)
    bad = tuple(cell for cell in resources.values() if cell not in _NONE and not cell.isdecimal())
    kind = next((cell for head, cell in row.items() if any(word in head for word in _TYPE)), "")
    node = Node.model_validate(
        {
            "metadata": {"name": row.get("NAME", ""), "labels": {LABEL_TYPE: kind} if kind not in _NONE else {}},
            "status": {
                "capacity": {GPU: total} if total not in _NONE else {},
                "allocatable": {GPU: offered} if offered not in _NONE else {},
            },
        }
    )
    conditions = _conditions(row.get("STATUS", ""))
    return DescribedNode(
        node=node.model_copy(update={"status": node.status.model_copy(update={"conditions": conditions})}),
        shows_resources=bool(resources),
        gaps=(*gaps, *(f"{cell} is no number of GPUs" for cell in bad)),
    )


def _conditions(status: str) -> tuple[Condition, ...]:
    """Ready, where kubectl's own column says that it is not true."""
    not_ready = status.split(",")[0] == "NotReady"
    return (Condition(type="Ready", status="False", reason="NotReady"),) if not_ready else ()


def _first(cells: Mapping[str, str], words: tuple[str, ...]) -> str:
    return next((cell for head, cell in cells.items() if any(word in head for word in words)), "")
