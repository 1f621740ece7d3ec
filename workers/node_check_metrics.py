"""How each check of the node stands, for Prometheus; part of `workers.node_metrics`."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from health.agent import NodeAgent
from health.children import leaked_by_owner
from sickbay.checks import CheckResult

_CHECK: Final = ("check",)


def check_metrics(agent: NodeAgent, now: datetime) -> Iterator[Metric]:
    """The metrics of every check that this node has, by its name."""
    seconds = GaugeMetricFamily("sickbay_node_check_seconds", "How long the last run took.", labels=_CHECK)
    age = GaugeMetricFamily("sickbay_node_check_age_seconds", "Since the last run began.", labels=_CHECK)
    result = GaugeMetricFamily(
        "sickbay_node_check_result", "1 for what the check says now.", labels=(*_CHECK, "result")
    )
    for report in agent.check_reports():
        for possible in CheckResult:
            result.add_metric((report.name, possible.value), report.result is possible)
        if report.result is not CheckResult.NOT_APPLICABLE:
            seconds.add_metric((report.name,), report.seconds)
            age.add_metric((report.name,), max(0.0, (now - report.at).total_seconds()))
    yield from (seconds, age, result, *_counts(agent))


def _counts(agent: NodeAgent) -> Iterator[Metric]:
    runs = CounterMetricFamily("sickbay_node_check_runs", "Runs by what they said.", labels=(*_CHECK, "result"))
    abandoned = CounterMetricFamily(
        "sickbay_node_check_abandoned_runs", "Runs that were given up with their threads.", labels=_CHECK
    )
    leaked = GaugeMetricFamily(
        "sickbay_node_check_leaked_children", "Children of the check that could not be ended.", labels=_CHECK
    )
    children = leaked_by_owner()
    for name, runner in agent.schedule.runners.items():
        for result, number in sorted(runner.runs.items()):
            runs.add_metric((name, result.value), number)
        abandoned.add_metric((name,), runner.abandoned)
        leaked.add_metric((name,), children[name])
    yield from (runs, abandoned, leaked)
