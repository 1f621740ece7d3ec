"""All formats, and which one a tree is of.

Called by `survey`. Where nobody says, the files tell; the order matters where one library's folder holds another's, as
a Trainer's holds DeepSpeed's, or where two leave their files at one place, as Megatron with DeepSpeed does.
"""

from typing import Final

from sickbay.checkpoints import dcp, deepspeed, hf_trainer, lightning, manifest, megatron, orbax
from sickbay.checkpoints.model import CheckpointFormat
from sickbay.checkpoints.tree import Format, Tree

FORMATS: Final[tuple[Format, ...]] = (
    manifest.Manifest(),
    megatron.Megatron(),
    hf_trainer.HfTrainer(),
    lightning.Lightning(),
    deepspeed.DeepSpeed(),
    orbax.Orbax(),
    dcp.Dcp(),
)


def format_of(tree: Tree, wanted: CheckpointFormat) -> Format | None:
    """The format to judge a tree by; None if its files are of no known one.

    One that finds checkpoints goes before one that only finds a trace of itself.
    """
    if wanted is not CheckpointFormat.AUTO:
        return next(one for one in FORMATS if one.format is wanted)
    alike = [one for one in FORMATS if one.matches(tree)]
    return next((one for one in alike if next(one.candidates(tree), None) is not None), alike[0] if alike else None)
