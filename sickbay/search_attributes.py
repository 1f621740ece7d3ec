"""The search attributes of every workflow of ours: what people filter by in Temporal's UI and lists.

Workflows set and upsert them, `workers.search_attributes` registers them, `activities.incidents` reads them back.
The identity ones are set at the start, which costs nothing; the others change only with the stage, since each upsert
is billed (facts: Temporal, 1.5). Values are never encrypted, so nothing but names and codes goes in.
"""

from typing import Final

from temporalio.common import SearchAttributeKey

NODE: Final = SearchAttributeKey.for_keyword("SickbayNode")
"""Name of the Node object."""
MACHINE: Final = SearchAttributeKey.for_keyword("SickbayMachine")
"""What names the machine for ever: `NodeRef.machine`."""
CLUSTER: Final = SearchAttributeKey.for_keyword("SickbayCluster")
POOL: Final = SearchAttributeKey.for_keyword("SickbayPool")
FAULT: Final = SearchAttributeKey.for_keyword_list("SickbayFault")
"""Codes of all faults that joined the incident, sorted."""
STAGE: Final = SearchAttributeKey.for_keyword("SickbayStage")
"""A `sickbay.incident.Stage`."""
RUNG: Final = SearchAttributeKey.for_keyword("SickbayRung")
"""The rung under way, and at the end the strongest that was tried: a `sickbay.faults.Rung`."""
OUTCOME: Final = SearchAttributeKey.for_keyword("SickbayOutcome")
"""A `sickbay.incident.Outcome`; set when the incident closes."""
JOB: Final = SearchAttributeKey.for_keyword("SickbayJob")
"""Training job: its own workflow's, or one that ran on the incident's node."""

KEYWORDS: Final = (NODE, MACHINE, CLUSTER, POOL, STAGE, RUNG, OUTCOME, JOB)
KEYWORD_LISTS: Final = (FAULT,)
