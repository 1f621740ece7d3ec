"""How the watch looks at a node: at the object itself, and with what it remembers of the node and of its cluster.

Used by `workers.triage`. `sickbay.watch_faults` decides what a memory means; here it is only kept, for as long as the
node is there. Nothing of it survives a restart or a change of leader, after which each patience begins anew.
"""

from collections.abc import Mapping
from datetime import datetime

from sickbay.kube_objects import Node
from sickbay.node_reading import read_node
from sickbay.nodes import NodeSnapshot
from sickbay.watch_faults import AgentsExpected, Beside, NodeMemory, WatchRules, has_agent, remember, with_watch_faults


class NodeLooks:
    """The looks at every node of one cluster."""

    def __init__(self, nodes: Mapping[str, Node], rules: WatchRules) -> None:
        self._nodes = nodes
        self._rules = rules
        self._memories: dict[str, NodeMemory] = {}
        self._agents_since: datetime | None = None

    def look(self, node: Node, now: datetime) -> NodeSnapshot:
        """The node with all faults that the watch can tell."""
        uid = node.metadata.uid
        memory = self._memories[uid] = remember(node, self._memories.get(uid), now)
        beside = Beside(memory=memory, agents_since=self._expected_since(now), excuses=self._rules.excuses)
        return with_watch_faults(read_node(node, now), node, beside)

    def forget(self, uid: str) -> None:
        """The node is gone."""
        self._memories.pop(uid, None)

    def _expected_since(self, now: datetime) -> datetime | None:
        """Since when agents are expected; once they are, they stay so: one that has come and gone was there."""
        if self._agents_since is None and self._are_expected():
            self._agents_since = now
        return self._agents_since

    def _are_expected(self) -> bool:
        if self._rules.agents is not AgentsExpected.AUTO:
            return self._rules.agents is AgentsExpected.YES
        return any(has_agent(node) for node in self._nodes.values())
