from datetime import timedelta

import pytest

from simulator.clock import Clock


def test_a_minute_at_speed_sixty_takes_one_real_second() -> None:
    assert Clock(speed=60).real(60) == 1.0


def test_simulated_and_real_seconds_are_inverse() -> None:
    clock = Clock(speed=25)
    assert clock.simulated(clock.real(17.0)) == pytest.approx(17.0)


def test_stamps_stay_on_the_wall_clock_while_their_age_is_simulated() -> None:
    clock = Clock(speed=100)
    assert clock.since(clock.now() - timedelta(seconds=2)) == pytest.approx(200, abs=50)


async def test_sleeping_no_time_returns() -> None:
    await Clock(speed=0.001).sleep(0)


@pytest.mark.parametrize("speed", [0, -1, float("nan")])
def test_a_speed_that_stops_time_is_refused_with_a_cure(speed: float) -> None:
    with pytest.raises(ValueError, match="give a number above 0"):
        Clock(speed=speed)
