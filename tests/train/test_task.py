import math

from deepex.train.task import Tally, Target


def test_tallies_add_up_in_any_order() -> None:
    parts = [Tally(total=0.1 * i, count=i, root=True) for i in range(1, 50)]
    assert Tally.merge(parts).value == Tally.merge(parts[::-1]).value
    assert math.isclose(Tally.merge(parts).value, math.sqrt(0.1))


def test_targets_have_a_direction() -> None:
    assert Target(metric="error", threshold=0.1).reached(0.05)
    assert not Target(metric="accuracy", threshold=0.9, direction="max").reached(0.05)
