"""The contract of a check that runs on a node; its words are in `sickbay.checks`.

Implemented by each layer's module here, listed in `health.layers`, run by the agent's schedule and by `sickbay check`.
"""

from typing import Protocol

from sickbay.checks import CheckAbout, CheckMoment, CheckOutcome, HostFacts


class Check(Protocol):
    """One check of one layer. An object of it lives as long as the agent."""

    @property
    def about(self) -> CheckAbout:
        """Its name, cost, limits and times."""
        ...

    def applies(self, host: HostFacts) -> str:
        """Empty if this machine has what the check looks at, else why it does not. Pure and quick."""
        ...

    def run(self, moment: CheckMoment) -> CheckOutcome:
        """Look once and judge. Blocking, in a thread of its own; it returns at the latest a second after the deadline.

        Whatever may hang (a driver, a device's sysfs file, a foreign program) is asked in a child through
        `health.children.run_child`. Nothing that the outside does is raised: it is an outcome.
        """
        ...
