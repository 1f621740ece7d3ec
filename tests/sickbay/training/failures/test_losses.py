"""The losses of a log: one that falls is ordinary, a spike passes or lasts, and no number is told."""

import pytest

from sickbay.training.failures.losses import LossSeries


def told(*losses: float | str, norms: tuple[float, ...] = ()) -> list[str]:
    series = LossSeries()
    for step, loss in enumerate(losses):
        number = loss if isinstance(loss, str) else f"{loss:.4f}"
        norm = f" | grad norm: {norms[step]}" if norms else ""
        series.take(f"iteration {step}/100 | loss: {number}{norm}")
    return [sign.code for sign in series.signs(1)]


@pytest.mark.parametrize(
    ("losses", "codes"),
    [
        ((11.0, 8.2, 6.1, 4.0, 3.1, 2.7, 2.6, 2.5), []),
        ((2.5, 2.4, 2.5, 2.4, 2.3), []),
        ((2.5, 2.4, 9.0, 2.4, 2.3, 2.4), ["loss-spike-recovered"]),
        ((11.0, 5.0, 2.5, 2.4, 9.0, 2.4, 2.3), ["loss-spike-recovered"]),
        ((2.5, 2.4, 2.4, 9.0, 9.5, 11.0), ["loss-diverged"]),
        ((2.5, 2.4, 2.4, 2.4, "nan"), ["loss-not-a-number"]),
        ((2.5, 2.4, 2.4, 8.0, "nan"), ["loss-diverged"]),
        (("nan",), ["loss-not-a-number"]),
        ((2.5, 9.0), []),
        ((0.0, 0.0, 0.0, 0.1, 0.0), []),
    ],
)
def test_a_series_tells_what_it_shows_and_nothing_of_an_ordinary_one(
    losses: tuple[float | str, ...], codes: list[str]
) -> None:
    assert told(*losses) == codes
