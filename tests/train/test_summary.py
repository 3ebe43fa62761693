"""What ranks tell of an epoch becomes one row."""

from deepex.train.recipe import Recipe
from deepex.train.summary import epoch_row
from deepex.train.task import Tally
from tests.rows import rank_row

TALLY = Tally(total=1.0, count=1)


def test_noise_is_that_of_all_ranks_together(line_recipe: Recipe) -> None:
    ranks = [rank_row(gradient_noise={"signal": signal, "noise": 40.0}) for signal in (1.0, 3.0)]
    row = epoch_row(line_recipe, [*ranks, rank_row(trains=False)], TALLY, None)
    assert row.noise_scale == 20.0


def test_energy_is_added_up_over_nodes_and_told_only_in_full(line_recipe: Recipe) -> None:
    def joules(*nodes: float | None, machines: str = "ab") -> float | None:
        first, last = (
            [rank_row(energy_joules=node, machine=name, trains=trains), rank_row(trains=trains)]
            for node, name, trains in zip(nodes, machines, (True, False), strict=True)  # servers need energy too
        )
        return epoch_row(line_recipe, [*first, *last], TALLY, None).energy_joules

    assert joules(50.0, 20.0) == 70.0
    assert joules(50.0, None) is None
    assert joules(50.0, 50.0, machines="aa") == 50.0  # two hosts that one machine plays read the same counters


def test_a_loss_may_be_called_as_any_key_of_the_row(line_recipe: Recipe) -> None:
    row = epoch_row(line_recipe, [rank_row(losses={"loss": 0.5, "seconds": 7.0, "value": 8.0})], TALLY, None)
    assert dict(row.losses) == {"loss": 0.5, "seconds": 7.0, "value": 8.0}
    assert (row.seconds, row.value) == (2.0, 1.0)
