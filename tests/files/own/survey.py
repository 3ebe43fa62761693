"""A task on what a reader of a user's own reads: the line through a survey's points."""

from pathlib import Path

from kepler import interrupt_once  # type: ignore[import-not-found]  # it stands beside this file
from points import read_points  # type: ignore[import-not-found]
from torch import Tensor, nn

import deepex as dx
from deepex.sample import Batch


def loss(model: nn.Module, batch: Batch) -> Tensor:
    interrupt_once(model)
    return nn.functional.mse_loss(model(batch["x"]), batch["y"])


survey = dx.task(
    name="survey", model=lambda: nn.Linear(1, 1), data=lambda: read_points(Path("points.txt").resolve()), loss=loss
)
packed = dx.task(name="survey", model=lambda: nn.Linear(1, 1), data="points.h5", loss=loss)
