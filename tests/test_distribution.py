from importlib.metadata import packages_distributions

import pytest

ROOMS = ("sickbay", "health", "activities", "workflows", "workers", "console", "simulator")


@pytest.mark.parametrize("room", ROOMS)
def test_no_other_distribution_brings_a_package_of_this_name(room: str) -> None:
    """Our packages have plain names, and pip overwrites silently where another distribution has the same."""
    # An editable install is not in this list at all.
    assert set(packages_distributions().get(room, [])) <= {"sickbay"}
