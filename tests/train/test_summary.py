"""What ranks tell of an epoch becomes one row."""

from typing import Any

from deepex.record.phases import BESIDE_PHASES, STEP_PHASES
from deepex.train.checkpoint import Position
from deepex.train.recipe import Recipe
from deepex.train.summary import epoch_row
from deepex.train.task import Tally


def tell(**more: Any) -> dict[str, Any]:
    """A rank's row, with what a test is about."""
    return {
        "trains": True,
        "losses": {"loss": 0.5},
        "steps": 4,
        "step_wall_seconds": 2.0,
        "phase_seconds": dict.fromkeys(STEP_PHASES + BESIDE_PHASES, 0.1),
        "sync_hidden_seconds": 0.0,
        "gradient_noise": None,
        **more,
    }


def test_noise_is_that_of_all_ranks_together(line_recipe: Recipe) -> None:
    ranks = [tell(gradient_noise={"signal": signal, "noise": 40.0}) for signal in (1.0, 3.0)]
    server = tell(trains=False)
    row = epoch_row(line_recipe, Position(epoch=1), [*ranks, server], Tally(total=1.0, count=1))
    assert row["noise_scale"] == 20.0


def test_energy_is_added_up_over_nodes_and_told_only_in_full(line_recipe: Recipe) -> None:
    def joules(*nodes: float | None, machines: str = "ab") -> float | None:
        told = [tell(energy_joules=node, machine=name) for node, name in zip(nodes, machines, strict=True)]
        ranks = [each for first in told for each in (first, tell())]
        ranks[-2]["trains"] = ranks[-1]["trains"] = False  # a node of parameter servers needs energy too
        row = epoch_row(line_recipe, Position(epoch=1), ranks, Tally(total=1.0, count=1))
        return None if row["energy_joules"] is None else float(row["energy_joules"])

    assert joules(50.0, 20.0) == 70.0
    assert joules(50.0, None) is None
    assert joules(50.0, 50.0, machines="aa") == 50.0  # two hosts that one machine plays read the same counters
