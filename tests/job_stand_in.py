"""A small workflow that hears what a training job hears, for tests of those who speak with jobs."""

from temporalio import workflow

from sickbay import names
from sickbay.training.handshake import NodeOver, NodeTrouble


@workflow.defn(name=names.WORKFLOW_JOB)
class StandInJob:
    """Keeps the words that an incident's node has for a job."""

    def __init__(self) -> None:
        self._troubles: list[NodeTrouble] = []
        self._overs: list[NodeOver] = []

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    def node_trouble(self, trouble: NodeTrouble) -> None:
        """Keep it."""
        self._troubles.append(trouble)

    @workflow.signal
    def node_over(self, over: NodeOver) -> None:
        """Keep it."""
        self._overs.append(over)

    @workflow.query
    def heard(self) -> list[str]:
        """Ids of the incidents of each."""
        return [one.incident_id for one in self._troubles] + [f"over {one.incident_id}" for one in self._overs]
