"""Where communication catches up with computing, on laws that are known."""

import pytest

from deepex.study.scaling import Point, find_crossover


def law(ranks: int, power: float, scale: float) -> Point:
    return Point(ranks=ranks, compute_seconds=100.0 / ranks, sync_seconds=100.0 / ranks * scale * ranks**power)


def test_a_power_law_is_followed_to_where_it_is_one() -> None:
    found = find_crossover([law(ranks, 1.0, 0.01) for ranks in (2, 4, 8)], syncs_fall=False)
    assert found.kind == "extrapolated"
    assert found.ranks == pytest.approx(100)
    assert "about 100 ranks" in found.sentence


def test_between_measured_numbers_it_is_measured() -> None:
    found = find_crossover([law(ranks, 1.0, 0.2) for ranks in (2, 4, 8)], syncs_fall=False)
    assert found.kind == "measured"
    assert found.ranks == pytest.approx(5)


def test_what_is_dominated_by_communication_from_the_start_says_so() -> None:
    found = find_crossover([law(2, 1.0, 2.0)], syncs_fall=True)
    assert (found.kind, found.ranks) == ("measured", 2)


def test_a_share_that_does_not_grow_never_gets_there() -> None:
    found = find_crossover([law(ranks, 0.0, 0.1) for ranks in (2, 4, 8)], syncs_fall=True)
    assert (found.kind, found.ranks) == ("never", None)
    assert "At 8 ranks it takes 10 %" in found.sentence
    hardly = [Point(ranks=ranks, compute_seconds=1.0, sync_seconds=0.01 * ranks**0.07) for ranks in (2, 4)]
    assert find_crossover(hardly, syncs_fall=True).kind == "never"


def test_one_point_goes_as_a_ring() -> None:
    point = Point(ranks=2, compute_seconds=10.0, sync_seconds=1.0)
    assert find_crossover([point], syncs_fall=False).ranks == pytest.approx(11)
    assert find_crossover([point], syncs_fall=True).kind == "never"
    assert find_crossover([Point(ranks=2, compute_seconds=10.0, sync_seconds=8.0)], syncs_fall=True).ranks == (
        pytest.approx(8 / 3)
    )


def test_without_points_nothing_is_known() -> None:
    assert find_crossover([], syncs_fall=True).kind == "unknown"
