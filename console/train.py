"""`sickbay train`: training jobs, from submission to report.

Registered by `console.main`. Each command is in a module of its own, which adds it to the group here; the group imports
them, since all but `classify` need the same clients.
"""

import typer

from console import train_classify, train_jobs, train_report


def register(app: typer.Typer) -> None:
    """Add the group `train`."""
    group = typer.Typer(
        help="Submit, follow and explain training jobs.", no_args_is_help=True, rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip
    for module in (train_jobs, train_report, train_classify):
        module.register(group)
    app.add_typer(group, name="train")
