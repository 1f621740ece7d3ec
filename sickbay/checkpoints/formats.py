"""All formats, and which one a tree is of.

Called by `activities.checkpoints`. Where nobody says, the files tell; the order matters only where one library's folder
holds another's, as a Trainer's holds DeepSpeed's.
"""

from typing import Final

from sickbay.checkpoints import dcp, deepspeed, hf_trainer, lightning, manifest, megatron, orbax
from sickbay.checkpoints.model import CheckpointFormat
from sickbay.checkpoints.tree import Format, Tree

FORMATS: Final[tuple[Format, ...]] = (
    manifest.Manifest(),
    megatron.Megatron(),
    hf_trainer.HfTrainer(),
    deepspeed.DeepSpeed(),
    orbax.Orbax(),
    lightning.Lightning(),
    dcp.Dcp(),
)


def format_of(tree: Tree, wanted: CheckpointFormat) -> Format | None:
    """The format to judge a tree by; None if its files are of no known one."""
    if wanted is not CheckpointFormat.AUTO:
        return next(one for one in FORMATS if one.format is wanted)
    return next((one for one in FORMATS if one.matches(tree)), None)
