"""What the controller's own half (watch and triage) counts; Temporal's SDK counts workflows and activities itself.

Every name says its unit; no label takes its values from a node's name, since a fleet has thousands.
"""

from typing import Final

from prometheus_client import Counter, Gauge

WATCH_RELISTS: Final = Counter(
    "sickbay_watch_relists", "Lists of all nodes after the watch broke off.", labelnames=("reason",)
)
NODES: Final = Gauge("sickbay_nodes", "Nodes that the watch knows.")
LEADING: Final = Gauge("sickbay_leading", "1 while this replica holds the lease of the watch.")
CONTAINED: Final = Counter("sickbay_containments", "Nodes on which the watch blocked new work by itself.")
CONTAINMENT_REFUSED: Final = Counter(
    "sickbay_containments_refused", "Containments that the cap did not allow; a node is counted at every look."
)
TOLD: Final = Counter("sickbay_incident_messages", "What the watch told incidents, by kind.", labelnames=("kind",))
RELEASED: Final = Counter("sickbay_orphaned_marks_released", "Marks that were removed since no incident owned them.")
FAILURES: Final = Counter(
    "sickbay_triage_failures",
    "Looks at a node that failed and come back, by what did not answer.",
    labelnames=("what",),
)
CLOUD_NOTED: Final = Counter("sickbay_cloud_words_noted", "Answers of EC2 that said something new of a node.")
CLOUD_FAILURES: Final = Counter(
    "sickbay_cloud_words_failures", "Questions to EC2 without an answer, or answers not noted.", labelnames=("why",)
)
