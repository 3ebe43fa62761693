"""Figures from repeated runs: geometric means, their ratios, and 95 % confidence intervals. It knows numbers only."""

from collections.abc import Sequence
from math import cos, exp, log, pi, sqrt, tan
from statistics import fmean, variance

from deepex.record.study_rows import Estimate

CONFIDENCE = 0.95
GRID = 1000


def estimate(values: Sequence[float]) -> Estimate | None:
    """The geometric mean of figures, with a t-interval of their logarithms; None if there are none, or one is 0.

    >>> estimate([2.0, 8.0]).value, estimate([3.0]).low
    (4.0, None)
    """
    return compare(values, [1.0]) if values and min(values) > 0 else None


def compare(above: Sequence[float], below: Sequence[float]) -> Estimate:
    """The ratio of two geometric means; the interval is Welch's, of the difference of the logarithms.

    A single 1 below counts as exact, another single figure gives no interval. As many runs are told as stand above.

    >>> found = compare([4.0, 4.4, 3.6], [2.0, 2.1, 1.9])
    >>> round(found.value, 3), round(found.low, 2), round(found.high, 2)
    (1.995, 1.62, 2.46)
    """
    samples = [[log(value) for value in values] for values in (above, below)]
    centre = fmean(samples[0]) - fmean(samples[1])
    spreads = [(variance(logs) / len(logs), len(logs) - 1) for logs in samples if len(logs) > 1]
    exact_below = len(below) == 1 and below[0] == 1.0
    total = sum(spread for spread, _ in spreads)
    if len(spreads) < 2 - exact_below:
        return Estimate(value=exp(centre), runs=len(above))
    freedom = total**2 / sum(spread**2 / degrees for spread, degrees in spreads) if total else 1.0
    reach = student(freedom) * sqrt(total)
    return Estimate(value=exp(centre), low=exp(centre - reach), high=exp(centre + reach), runs=len(above))


def student(freedom: float) -> float:
    """How many standard errors a two-sided interval reaches, by Student's distribution.

    With t = sqrt(n) tan(a), the probability within t is the integral of cos(a)^(n-1) from 0 to a over that to pi/2.

    >>> [round(student(degrees), 2) for degrees in (1, 2, 10, 100)]
    [12.71, 4.3, 2.23, 1.98]
    """
    step = pi / 2 / GRID
    heights = [cos(step * (place + 0.5)) ** (freedom - 1) for place in range(GRID)]
    wanted, reached = CONFIDENCE * sum(heights), 0.0
    for place, height in enumerate(heights):
        if reached + height >= wanted:
            return sqrt(freedom) * tan(step * (place + (wanted - reached) / height))
        reached += height
    raise AssertionError("the integral ends above any share of itself")
