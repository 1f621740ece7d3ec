"""What a change of dcgm-exporter's last Xid means, and its mere level does not.

Called by `sickbay.dcgm.exporter`. The number never returns to zero (dcgm-exporter#95, #190): one that was there at the
first look may be of last week. So a change is a fault at the look that finds it, which the record of the check keeps
open until a proof; a level is told and disturbs nobody.
"""

from collections.abc import Mapping
from typing import Final

from pydantic import ValidationError

from sickbay.dcgm.reported import xid_code
from sickbay.model import Frozen

LEVEL_CODE: Final = "dcgm-xid"

_GPUS_KEPT: Final = 256
"""A page that names its GPUs anew each time must not fill the memory."""


class LastXids(Frozen):
    """The last Xid of each GPU, by UUID, at some look."""

    xids: dict[str, int]


def remembered_xids(memory: str) -> LastXids | None:
    """What an earlier look of this boot left; None if there was none."""
    try:
        return LastXids.model_validate_json(memory)
    except ValidationError:
        return None


def code_of_last_xid(uuid: str, xid: int, before: LastXids | None) -> str:
    """The code of a GPU's last Xid; empty if it has none, or an earlier look has already told it."""
    if xid == 0:
        return ""
    if before is None or uuid not in before.xids:
        return LEVEL_CODE
    return xid_code(xid) if before.xids[uuid] != xid else ""


def with_xids(before: LastXids | None, seen: Mapping[str, int]) -> LastXids:
    """What to remember after a look: a GPU that a torn page lacks keeps its last one."""
    known = {**(before.xids if before else {}), **seen}
    return LastXids(xids=dict(list(known.items())[-_GPUS_KEPT:]))
