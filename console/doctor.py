"""`sickbay doctor`: what in a cluster would make Sickbay fail, each with its cure.

Registered by `console.main`. It reads the cluster through the usual kubeconfig and Temporal through its usual
variables, and writes nothing to either. It cannot see launch templates of node groups, nor what a Temporal namespace
will refuse later: no finding is no promise.
"""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from temporalio.service import RPCError

from activities import kube
from activities.cluster_survey import survey
from activities.kube import ClusterAccessError
from console.controller import read_policy
from console.errors import UserError
from sickbay.cluster_survey import Ailment
from sickbay.policy.file import Policy
from workers.search_attributes import missing_search_attributes
from workers.temporal_link import TemporalUnreachableError, connect


def register(app: typer.Typer) -> None:
    """Add the command `doctor`."""

    @app.command()
    def doctor(
        context: Annotated[str | None, typer.Option(help="Context of the kubeconfig; else its current one.")] = None,
        kubeconfig: Annotated[Path | None, typer.Option(help="A kubeconfig file; else the usual one.")] = None,
        policy: Annotated[
            Path | None,
            typer.Option(envvar="SICKBAY_POLICY_FILE", help="The policy that the controller runs under."),
        ] = None,
    ) -> None:
        """Say what in a cluster would make Sickbay fail, each with its cure.

        Rights are those of whoever asks: use a context of the controller's service account to check its own. Exit
        code: 0 nothing found, 1 something found, 2 the cluster cannot be reached.
        """
        raise typer.Exit(doctor_command(context, kubeconfig, read_policy(policy, "--policy")))


def doctor_command(context: str | None, kubeconfig: Path | None, policy: Policy) -> int:
    """Print every ailment; the exit code. Raises UserError if there is no way to the cluster."""
    found = asyncio.run(_examine(context, kubeconfig, policy))
    for ailment in found:
        print(f"- {ailment.what}\n  cure: {ailment.cure}")
    print(f"{len(found)} thing(s) would make Sickbay fail." if found else "Nothing was found that would make it fail.")
    return 1 if found else 0


async def _examine(context: str | None, kubeconfig: Path | None, policy: Policy) -> tuple[Ailment, ...]:
    try:
        async with await kube.connect(kubeconfig, context) as api:
            in_cluster = await survey(api, policy)
    except ClusterAccessError as error:
        raise UserError(str(error)) from error
    return (*in_cluster, *await _of_temporal())


async def _of_temporal() -> tuple[Ailment, ...]:
    try:
        missing = await missing_search_attributes(await connect())
    except TemporalUnreachableError as error:
        what, _, cure = str(error).partition("; ")
        return (Ailment(what=what, cure=cure),)
    except RPCError as error:
        cure = "look for them with the namespace's own tool"
        return (Ailment(what=f"Temporal does not tell its search attributes: {error.message}", cure=cure),)
    if not missing:
        return ()
    cure = "start the controller once, which adds them, or add them with the namespace's own tool"
    return (Ailment(what=f"search attributes are missing in Temporal: {', '.join(missing)}", cure=cure),)
