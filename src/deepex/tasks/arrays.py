"""A user's own module on a user's own arrays, as a task."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from deepex.data import ArraySource, Splits, Subset
from deepex.errors import ConfigError
from deepex.sample import Batch
from deepex.train.task import Loss, Tally, Target


@dataclass(frozen=True, kw_only=True)
class ArrayTask:
    """Train any module on arrays in memory.

    Arguments:
        network: makes a new module, as in `lambda: nn.Linear(8, 1)`.
        arrays: tensors or NumPy arrays by name, samples along the first dimension.
        objective: `(model, batch) -> scalar`, the mean loss of a batch. It is also the metric, on held-out samples.
        threshold: the metric at which training stops.
        validation_share: the share of samples that is held out, drawn at random but always the same.

    >>> import torch
    >>> task = ArrayTask(
    ...     network=lambda: nn.Linear(2, 1),
    ...     arrays={"x": torch.zeros(100, 2), "y": torch.zeros(100, 1)},
    ...     objective=lambda model, batch: (model(batch["x"]) - batch["y"]).square().mean(),
    ...     threshold=0.1,
    ... )
    >>> len(task.data().train)
    80
    """

    network: Callable[[], nn.Module] = field(metadata={"setting": False})
    arrays: Mapping[str, Tensor | NDArray[Any]] = field(metadata={"setting": False})
    objective: Callable[[nn.Module, Batch], Tensor] = field(metadata={"setting": False})
    threshold: float
    name: str = "arrays"
    validation_share: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.validation_share < 1:
            raise ConfigError(f"validation_share = {self.validation_share}. Allowed: numbers between 0 and 1.")

    @property
    def target(self) -> Target:
        return Target(metric="loss", threshold=self.threshold)

    def data(self) -> Splits:
        source = ArraySource(self.arrays)
        order = np.random.default_rng(0).permutation(len(source))
        held_out = max(1, round(len(source) * self.validation_share))
        digest = hashlib.sha256()
        for name, tensor in source.tensors.items():
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).tobytes())
        return Splits(
            train=Subset(source, np.sort(order[held_out:])),
            validation=Subset(source, np.sort(order[:held_out])),
            content_sha256=digest.hexdigest(),
        )

    def model(self) -> nn.Module:
        return self.network()

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        return Loss(total=self.objective(model, batch))

    def evaluate(self, model: nn.Module, batch: Batch) -> Tally:
        size = len(next(iter(batch.values())))
        return Tally(total=float(self.objective(model, batch)) * size, count=size)
