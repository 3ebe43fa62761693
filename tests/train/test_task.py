import math

import pytest
import torch

from deepex.errors import ConfigError
from deepex.train.task import Loss, Tally, Target


def test_tallies_add_up_in_any_order() -> None:
    parts = [Tally(total=0.1 * i, count=i, root=True) for i in range(1, 50)]
    assert Tally.merge(parts).value == Tally.merge(parts[::-1]).value
    assert math.isclose(Tally.merge(parts).value, math.sqrt(0.1))


def test_what_stands_beside_a_metric_adds_up_too() -> None:
    parts = [Tally(total=1.0, count=2, beside={"top5": 0.5}), Tally(total=2.0, count=4, beside={"top5": 1.0})]
    assert Tally.merge(parts).values_beside == {"top5": 0.25}


def test_no_part_of_a_loss_takes_the_total_s_name() -> None:
    parts = {"seconds": torch.ones(()), "epoch": torch.ones(())}
    assert Loss(total=torch.ones(()), parts=parts).parts == parts
    with pytest.raises(ConfigError, match="a part of the loss is called 'loss'"):
        Loss(total=torch.ones(()), parts={"loss": torch.ones(())})


def test_targets_have_a_direction() -> None:
    assert Target(metric="error", threshold=0.1).reached(0.05)
    assert not Target(metric="accuracy", threshold=0.9, direction="max").reached(0.05)


def test_a_target_without_a_threshold_is_never_reached_and_still_tells_better_from_worse() -> None:
    target = Target(metric="accuracy", direction="max")
    assert str(target) == "none"
    assert not target.reached(float("inf"))
    assert target.is_better(0.6, 0.5)
    assert not any(target.is_better(value, 0.5) for value in (0.5, 0.4, math.nan))
