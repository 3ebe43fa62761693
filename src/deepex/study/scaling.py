"""How fast epochs become with more ranks, and where communication catches up with computing. Pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, inf, log

from deepex.record.study_rows import Crossover

EQUAL = "Communication takes as long as computing"
LEAST_RATIO = 1e-9  # so that it has a logarithm
FARTHEST = 1000  # times the most ranks that were measured; beyond, an extrapolation says nothing
FLAT = 0.05  # a power of the number of ranks below which a share does not grow


@dataclass(frozen=True, kw_only=True)
class Point:
    """Seconds of an epoch that a cell computes and communicates."""

    ranks: int
    compute_seconds: float
    sync_seconds: float

    @property
    def ratio(self) -> float:
        return max(self.sync_seconds / self.compute_seconds, LEAST_RATIO)


def find_crossover(points: Sequence[Point], *, syncs_fall: bool) -> Crossover:
    """Where communication equals computing.

    Between two measured numbers of ranks it is read off the straight line through both, on logarithmic axes. Beyond
    them the ratio r of communication to computing is taken to go as a P^k, fitted to all points; from a single one it
    is taken to go as a ring's all-reduce does, whose time is as (P - 1)/P, while an epoch's computing goes as 1/P.

    Arguments:
        points: of one series, with at least two ranks each and as many cores.
        syncs_fall: whether an epoch has fewer syncs with more ranks, as it has fewer steps with larger batches.

    >>> find_crossover([Point(ranks=2, compute_seconds=8.0, sync_seconds=1.0)], syncs_fall=False).ranks
    9.0
    """
    points = sorted(points, key=lambda point: point.ranks)
    if not points:
        told = "No cell had two ranks or more with cores of their own: when communication catches up is not known."
        return Crossover(kind="unknown", ranks=None, sentence=told)
    first, last = points[0], points[-1]
    if first.ratio >= 1:
        return Crossover(
            kind="measured",
            ranks=float(first.ranks),
            sentence=f"{EQUAL} at {first.ranks} ranks or fewer, where it takes {first.ratio:.2g} × as long.",
        )
    for below, above in pairwise(points):
        if above.ratio >= 1:
            power = log(above.ratio / below.ratio) / log(above.ranks / below.ranks)
            ranks = below.ranks * exp(-log(below.ratio) / power)
            told = f"about {ranks:.0f} ranks, between {below.ranks} and {above.ranks} that were measured"
            return Crossover(kind="measured", ranks=ranks, sentence=f"{EQUAL} at {told}.")
    ranks, how = _by_ring(last, syncs_fall) if len(points) == 1 else _by_power(points)
    at_last = f"At {last.ranks} ranks it takes {100 * last.ratio:.2g} % of the computing's time."
    if ranks > FARTHEST * last.ranks:
        told = f"Communication does not catch up with computing within reach, extrapolated {how}. {at_last}"
        return Crossover(kind="never", ranks=None, sentence=told)
    told = f"{EQUAL} at about {ranks:,.0f} ranks, extrapolated {how}. {at_last}"
    return Crossover(kind="extrapolated", ranks=ranks, sentence=told)


def _by_ring(point: Point, syncs_fall: bool) -> tuple[float, str]:
    how = f"from {point.ranks} ranks by the time of a ring's all-reduce"
    limit = point.ratio * point.ranks / (point.ranks - 1)  # of the ratio, with many ranks, if syncs fall
    if syncs_fall:
        return (limit / (limit - 1) if limit > 1 else inf), how
    return 1 + point.ranks / limit, how


def _by_power(points: Sequence[Point]) -> tuple[float, str]:
    """Where a P^k through the points is one: least squares on logarithms."""
    ranks, ratios = [log(point.ranks) for point in points], [log(point.ratio) for point in points]
    centre_rank, centre_ratio = sum(ranks) / len(ranks), sum(ratios) / len(ratios)
    over = sum((x - centre_rank) * (y - centre_ratio) for x, y in zip(ranks, ratios, strict=True))
    power = over / sum((x - centre_rank) ** 2 for x in ranks)
    how = f"by the power {power:.2f} of the number of ranks that fits {len(points)} cells"
    if power < FLAT:
        return inf, how
    return exp(centre_rank - centre_ratio / power), how
