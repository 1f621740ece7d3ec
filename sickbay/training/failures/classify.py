"""What the evidence of an ended attempt means: the rules in the order in which they are asked; the first that applies
decides.

Called by `activities.job_evidence` and by `sickbay train classify`. Pure and versioned (`verdicts.RULES_VERSION`). The
order is the decision table's of facts: training, 2.7, with its precedence: hardware outweighs the job's own exception,
that outweighs memory, that outweighs signals, and all of them outweigh what only follows from another failure.
"""

from collections.abc import Callable
from typing import Final

from sickbay.training.evidence import Evidence
from sickbay.training.failures import rules_code, rules_ends, rules_machines, rules_setup, rules_waiting
from sickbay.training.failures.case import Case
from sickbay.training.verdicts import FailureVerdict

Rule = Callable[[Case], FailureVerdict | None]

RULES: Final[tuple[Rule, ...]] = (
    # What a detector or a machine's own words say of hardware.
    rules_machines.faulty_node,
    rules_waiting.failing_check,
    rules_machines.own_hardware,
    # Orders, and ends that nobody is to blame for.
    rules_ends.ordered,
    rules_ends.disrupted,
    rules_machines.lost_node,
    rules_machines.node_pressure,
    rules_machines.not_admitted,
    rules_machines.lost_node_in_words,
    # What is specific, the setup's before the code's.
    rules_machines.unusable_gpu,
    rules_setup.memory,
    rules_setup.shared_memory,
    rules_setup.unreadable_checkpoint,
    rules_setup.wrong_setup,
    rules_code.mismatch,
    rules_code.confirmed_corruption,
    rules_code.device_assert,
    rules_code.device_memory,
    rules_code.numbers,
    rules_setup.images,
    rules_machines.storage,
    rules_waiting.late_peer,
    rules_waiting.infiniband,
    rules_code.either_way,
    rules_setup.doubtful_setup,
    # Who waited for whom.
    rules_waiting.after_the_end,
    rules_waiting.hang,
    rules_waiting.silent_network,
    rules_waiting.network_or_peer,
    # What tells little.
    rules_ends.sudden_death,
    rules_code.own_exception,
    rules_waiting.cascade,
    rules_code.exception,
    rules_code.spike,
    rules_ends.all_alike,
    rules_ends.ended_early,
)


def classify(evidence: Evidence) -> FailureVerdict:
    """The verdict on one attempt."""
    case = Case(evidence)
    return next((found for rule in RULES if (found := rule(case)) is not None), None) or rules_ends.nothing_known(case)
