"""Intervals hold what they promise."""

import numpy as np
import pytest

from deepex.study.estimate import compare, estimate, student


@pytest.mark.parametrize(("freedom", "reach"), [(1, 12.706), (3, 3.182), (7.5, 2.334), (30, 2.042)])
def test_student_s_reach_is_that_of_the_tables(freedom: float, reach: float) -> None:
    assert student(freedom) == pytest.approx(reach, rel=1e-3)


@pytest.mark.parametrize("count", [2, 3, 6])
def test_nineteen_of_twenty_intervals_hold_the_true_ratio(count: int) -> None:
    draws = np.random.default_rng(count)
    held = 0
    for _ in range(150):
        above = np.exp(draws.normal(np.log(6.0), 0.1, count))
        below = np.exp(draws.normal(np.log(2.0), 0.2, count))
        found = compare(above.tolist(), below.tolist())
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 3.0 <= found.high
    assert held >= 0.9 * 150  # Welch's interval is a little wide for very few runs, never narrow


def test_one_run_has_no_interval() -> None:
    assert compare([3.0], [1.5, 1.6]).low is None
    assert compare([3.0, 3.1], [1.5]).low is None
    assert estimate([]) is None


def test_equal_runs_have_an_interval_of_no_width() -> None:
    found = compare([2.0, 2.0], [1.0, 1.0])
    assert (found.low, found.value, found.high) == (2.0, 2.0, 2.0)
