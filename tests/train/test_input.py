"""What is found out about data before a run begins."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from deepex.data import Splits, Subset
from deepex.errors import ConfigError, DataError
from deepex.launch.start import start
from deepex.tasks.own import OwnTask
from deepex.train.input import open_data
from deepex.train.recipe import Recipe

NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class OneSided(OwnTask):
    """A task of which one split is empty."""

    empty: str = "validation"

    def data(self) -> Splits:
        splits = super().data()
        nothing = Subset(splits.train, NONE)
        return replace(splits, train=nothing) if self.empty == "train" else replace(splits, validation=nothing)


@pytest.mark.parametrize(
    ("empty", "said"),
    [
        ("validation", "has 480 samples to train on and 0 to validate with. Needed: at least 1 of each. Give more"),
        ("train", "has 0 samples to train on and 120 to validate with. Needed: at least 1 of each. Give more"),
    ],
)
def test_a_split_without_samples_is_refused_before_anything_is_written(
    line: OwnTask, tmp_path: Path, empty: str, said: str
) -> None:
    one_sided = OneSided(**vars(line), empty=empty)
    with pytest.raises(DataError) as raised:
        start(Recipe(task=one_sided), tmp_path / "run", "quiet")
    assert f"task 'line' {said}" in str(raised.value)
    assert not (tmp_path / "run").exists()


def test_more_ranks_than_samples_are_refused(line_recipe: Recipe) -> None:
    world = replace(line_recipe.world, ranks=481)
    with pytest.raises(ConfigError, match="Use at most 480 ranks"):
        open_data(replace(line_recipe, world=world))
