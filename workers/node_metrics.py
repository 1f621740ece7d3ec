"""What the node's process tells Prometheus of the agent; the SDK's own metrics are the controller's."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

from prometheus_client import PROCESS_COLLECTOR, CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from health.agent import NodeAgent
from health.children import leaked_children
from health.publisher import Publisher
from workers.node_check_metrics import check_metrics
from workers.node_gpu_metrics import gpu_metrics


class NodeMetrics(Collector):
    """Reads the agent anew at each scrape."""

    def __init__(self, agent: NodeAgent, publisher: Publisher) -> None:
        self._agent = agent
        self._publisher = publisher

    def collect(self) -> Iterator[Metric]:
        """The metrics now."""
        report = self._agent.report()
        faults = GaugeMetricFamily("sickbay_node_open_faults", "Open faults by code.", labels=["fault", "class"])
        counted = Counter((fault.code, fault.fault_class.value) for fault in report.faults)
        for labels, number in sorted(counted.items()):
            faults.add_metric(labels, number)
        yield faults
        yield GaugeMetricFamily(
            "sickbay_node_checks_unknown", "Checks that could not judge.", value=len(report.checks_unknown)
        )
        yield GaugeMetricFamily(
            "sickbay_node_leaked_children", "Children stuck in the driver until a reboot.", value=leaked_children()
        )
        yield GaugeMetricFamily(
            "sickbay_node_published",
            "1 if the last write to the Node object worked.",
            value=not self._publisher.problem,
        )
        yield from check_metrics(self._agent, datetime.now(UTC))
        yield from gpu_metrics(self._agent.gpu_answer)


def node_registry(agent: NodeAgent, publisher: Publisher) -> CollectorRegistry:
    """The registry of one node process."""
    registry = CollectorRegistry()
    registry.register(NodeMetrics(agent, publisher))
    registry.register(PROCESS_COLLECTOR)
    return registry
