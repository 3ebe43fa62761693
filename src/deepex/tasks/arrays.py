"""A user's own module on a user's own data, arrays or a packed file, as a task."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from deepex.data import ArraySource, Preparation, Source, Splits, Subset
from deepex.data.packing.packed import PackedSource
from deepex.data.split import split_by_name
from deepex.errors import ConfigError
from deepex.sample import Batch
from deepex.train.task import Loss, Tally, Target

Chosen: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class ArrayTask:
    """Train any module on arrays in memory, or on a packed data set.

    Arguments:
        network: makes a new module, as in `lambda: nn.Linear(8, 1)`.
        arrays: tensors or NumPy arrays by name, samples along the first dimension; or the path of a packed data set,
            as `deepex data pack` writes it; or any source.
        objective: `(model, batch) -> scalar`, the mean loss of a batch. It is also the metric, on held-out samples.
        threshold: the metric at which training stops.
        validation_share: the share of samples that is held out: at random but always the same ones of arrays, by the
            sample's name of all else.
        preparation: conversions and augmentations on the way from storage to the network.

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
    arrays: Mapping[str, Tensor | NDArray[Any]] | Source | str | Path = field(metadata={"setting": False})
    objective: Callable[[nn.Module, Batch], Tensor] = field(metadata={"setting": False})
    threshold: float
    name: str = "arrays"
    validation_share: float = 0.2
    preparation: Preparation = field(default_factory=Preparation, metadata={"setting": False})

    def __post_init__(self) -> None:
        if not 0 < self.validation_share < 1:
            raise ConfigError(f"validation_share = {self.validation_share}. Allowed: numbers between 0 and 1.")

    @property
    def target(self) -> Target:
        return Target(metric="loss", threshold=self.threshold)

    def data(self) -> Splits:
        if not isinstance(self.arrays, Mapping):
            return self._split_by_name()
        source = ArraySource(self.arrays)
        order = np.random.default_rng(0).permutation(len(source))
        held_out = max(1, round(len(source) * self.validation_share))
        digest = hashlib.sha256()
        for name, tensor in source.tensors.items():
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).tobytes())
        return self._splits(source, np.sort(order[held_out:]), np.sort(order[:held_out]), digest.hexdigest())

    def _split_by_name(self) -> Splits:
        source = PackedSource(Path(self.arrays)) if isinstance(self.arrays, str | Path) else cast(Source, self.arrays)
        names = [source.name(index) for index in range(len(source))]
        parts = split_by_name(names, {"train": 1 - self.validation_share, "validation": self.validation_share})
        if not len(parts["train"]) or not len(parts["validation"]):
            raise ConfigError(
                f"{len(source)} samples with validation_share = {self.validation_share} leave one side empty. Give "
                "more samples, or another share."
            )
        digest = source.content_sha256 if isinstance(source, PackedSource) else _names_sha256(names)
        return self._splits(source, parts["train"], parts["validation"], digest)

    def _splits(self, source: Source, train: Chosen, validation: Chosen, content_sha256: str) -> Splits:
        return Splits(
            train=Subset(source, train),
            validation=Subset(source, validation),
            content_sha256=content_sha256,
            preparation=self.preparation,
            left_out=source.left_out if isinstance(source, PackedSource) else {},
        )

    def model(self) -> nn.Module:
        return self.network()

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        return Loss(total=self.objective(model, batch))

    def evaluate(self, model: nn.Module, batch: Batch) -> Tally:
        size = len(next(iter(batch.values())))
        return Tally(total=float(self.objective(model, batch)) * size, count=size)


def _names_sha256(names: list[str]) -> str:
    """What is known of a source that carries no hash of its own: what its samples are called."""
    return hashlib.sha256("\n".join(names).encode()).hexdigest()
