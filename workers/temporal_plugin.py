"""The one plugin that makes a Temporal client ours: converter and workflow sandbox.

Given to `Client.connect(plugins=[...])` by every process and to `Replayer(plugins=[...])` by the replay tests, so that
tests and production cannot drift apart. The client hands it to its workers; a worker must not be given it again
(facts: Temporal, 1.13).
"""

from typing import Final

from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.plugin import SimplePlugin
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

PASSED_THROUGH: Final = ("activities", "sickbay")
"""Our packages that workflows import. Executed anew for each workflow run they cost ten times the memory and nine times
the time (facts: Temporal, 0.1); they hold no state, so nothing is lost by sharing them."""


def temporal_plugin() -> SimplePlugin:
    """The plugin of every Sickbay client, worker and replayer."""
    restrictions = SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH)
    return SimplePlugin(
        "sickbay",
        data_converter=pydantic_data_converter,
        workflow_runner=SandboxedWorkflowRunner(restrictions=restrictions),
    )
