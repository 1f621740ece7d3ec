from sickbay.instance_types import LIMITS, limits_of
from simulator.instance_types import INSTANCE_TYPES


def test_types_that_are_not_in_the_table_are_not_guessed() -> None:
    assert limits_of("p9.metal") is None
    assert limits_of("") is None


def test_the_simulated_types_have_the_gpus_of_the_table() -> None:
    """Beside those of EC2 the simulator has machines of nobody's, whose names begin with `own.`."""
    assert {name: limits.gpus for name in INSTANCE_TYPES if (limits := limits_of(name))} == {
        name: kind.gpus for name, kind in INSTANCE_TYPES.items() if not name.startswith("own.")
    }


def test_a_fraction_of_a_gpu_is_no_count_and_only_boards_of_eight_have_switches() -> None:
    assert all(limits.gpus is None for name, limits in LIMITS.items() if name.startswith("g6f."))
    assert {limits.gpus for limits in LIMITS.values() if limits.nvswitches} == {8}
