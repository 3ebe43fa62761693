"""Plans: which rank reads which sample when, to train and to evaluate. Pure functions of a few numbers; they touch no
data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from deepex.errors import ConfigError
from deepex.world import World

Shuffle = Literal["global", "local"]
Last = Literal["drop", "pad"]

Batches = NDArray[np.int64] | Sequence[NDArray[np.int64]]
"""Indices of samples, a row a batch."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """How samples become batches.

    Attributes:
        batch: samples of one rank in one step.
        shuffle: `global` (one order for all ranks, the same whatever their number) or `local` (a rank owns a share of
            the samples and permutes it, as DeepEx does).
        last: what becomes of an epoch's last batch if it is not full: `drop` leaves its samples out, `pad` fills it
            with the first ones of the same epoch.
        balance: a field with classes; each is then drawn equally often, rare ones with repetition.
        memory_gib: how much memory a rank may use in all; samples are cached in what the network leaves of it. None
            stands for half of what is free, shared among the ranks of a machine.
        stage: a folder on storage of the node's own; what its ranks read is copied there once.
    """

    batch: int = 64
    shuffle: Shuffle = "global"
    last: Last = "drop"
    balance: str | None = None
    memory_gib: float | None = None
    stage: str | None = None

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ConfigError(f"data.batch = {self.batch}. Allowed: whole numbers from 1.")
        if self.memory_gib is not None and self.memory_gib < 0:
            raise ConfigError(f"data.memory_gib = {self.memory_gib:g}. Allowed: numbers from 0, or none.")


class BatchPlan(Protocol):
    """What a feed asks of a plan."""

    @property
    def batch(self) -> int:
        """The most samples of a batch."""

    @property
    def steps_per_epoch(self) -> int:
        """Batches of this rank in an epoch."""

    def owned(self) -> NDArray[np.int64]:
        """The samples that this rank ever reads."""

    def indices(self, epoch: int) -> Batches:
        """This rank's samples of an epoch, batch by batch."""

    def drawn_for(self, epoch: int) -> tuple[int, int] | None:
        """What augmentations of an epoch are drawn for; none if samples are left as they are."""

    def following(self, epoch: int, step: int) -> tuple[int, int] | None:
        """The batch that is sure to be asked for next, by epoch and step; none after the last."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The order of samples of one rank in training: epoch after epoch, each in an order of its own.

    Every rank takes the same number of steps an epoch. What `drop` leaves out changes with the order, from epoch to
    epoch. With `weights`, samples are drawn in proportion to them instead of once each.

    >>> Plan(num_samples=10, batch=2, rank=1, size=2).steps_per_epoch
    2
    """

    num_samples: int
    batch: int
    seed: int = 0
    shuffle: Shuffle = "global"
    last: Last = "drop"
    rank: int = 0
    size: int = 1
    weights: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        if self.batch * self.size > self.num_samples:
            largest = self.num_samples // self.size
            cure = (
                f"Use data.batch={largest} or less, or fewer ranks."
                if largest
                else f"Use at most {self.num_samples} ranks."
            )
            raise ConfigError(
                f"{self.size} ranks with a batch of {self.batch} need {self.size * self.batch} training samples "
                f"a step, and there are {self.num_samples}. {cure}"
            )

    @classmethod
    def for_rank(
        cls, config: DataConfig, num_samples: int, seed: int, world: World, weights: NDArray[Any] | None = None
    ) -> Self:
        """The plan of one rank of a world."""
        return cls(
            num_samples=num_samples,
            batch=config.batch,
            seed=seed,
            shuffle=config.shuffle,
            last=config.last,
            rank=world.rank,
            size=world.size,
            weights=weights,
        )

    @property
    def steps_per_epoch(self) -> int:
        if self.last == "pad":  # so many that the rank with most samples sees them all
            return -(-self.num_samples // (self.batch * self.size))
        return self.num_samples // self.size // self.batch

    def owned(self) -> NDArray[np.int64]:
        """The samples that this rank ever reads: its share in `local` shuffling, else all."""
        if self.shuffle == "global":
            return np.arange(self.num_samples)
        return _permutation((self.seed,), self.num_samples)[self.rank :: self.size]

    def drawn_for(self, epoch: int) -> tuple[int, int]:
        """Seed and epoch."""
        return self.seed, epoch

    def following(self, epoch: int, step: int) -> tuple[int, int]:
        """The next step; after an epoch's last, the first of the next."""
        return (epoch, step + 1) if step + 1 < self.steps_per_epoch else (epoch + 1, 0)

    def indices(self, epoch: int) -> NDArray[np.int64]:
        """This rank's samples of an epoch, one row a step."""
        rows = self.steps_per_epoch
        if self.shuffle == "local":
            mine = self._ordered(self.owned(), (self.seed, epoch, self.rank))
            return np.resize(mine, rows * self.batch).reshape(rows, self.batch)
        order = self._ordered(np.arange(self.num_samples), (self.seed, epoch))
        return np.resize(order, rows * self.size * self.batch).reshape(rows, self.size, self.batch)[:, self.rank]

    def _ordered(self, samples: NDArray[np.int64], key: tuple[int, ...]) -> NDArray[np.int64]:
        """Samples in an epoch's order: each once, or as often as their weights say."""
        if self.weights is not None:
            samples = _drawn(samples, self.weights[samples], key)
        return samples[_permutation(key, len(samples))]


@dataclass(frozen=True, kw_only=True)
class SequentialPlan:
    """All samples once and in order, the batches dealt out to the ranks in turn; the last one may be shorter.

    The batches are the same whatever the number of ranks, and every epoch has the same.

    >>> [batch.tolist() for batch in SequentialPlan(num_samples=10, batch=4, rank=0, size=2).indices(0)]
    [[0, 1, 2, 3], [8, 9]]
    """

    num_samples: int
    batch: int
    rank: int = 0
    size: int = 1

    @property
    def steps_per_epoch(self) -> int:
        return len(self._starts)

    def owned(self) -> NDArray[np.int64]:
        return np.concatenate([np.empty(0, dtype=np.int64), *self.indices(0)])

    def indices(self, epoch: int) -> list[NDArray[np.int64]]:
        return [np.arange(first, min(first + self.batch, self.num_samples)) for first in self._starts]

    def drawn_for(self, epoch: int) -> None:
        """Samples are left as they are."""
        return None

    def following(self, epoch: int, step: int) -> tuple[int, int] | None:
        """The next step; none after the last, as nobody knows when there will be another epoch."""
        return (epoch, step + 1) if step + 1 < self.steps_per_epoch else None

    @property
    def _starts(self) -> range:
        return range(self.rank * self.batch, self.num_samples, self.size * self.batch)


def class_weights(labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Weights that let each class come equally often.

    >>> class_weights(np.array([0, 0, 0, 1])).round(3).tolist()
    [0.333, 0.333, 0.333, 1.0]
    """
    counts = np.bincount(labels)
    return np.asarray(1.0 / counts[labels], dtype=np.float64)


def _drawn(samples: NDArray[np.int64], weights: NDArray[np.float64], key: tuple[int, ...]) -> NDArray[np.int64]:
    """As many samples again, each as often as its weight says, give or take one (systematic resampling)."""
    edges = np.cumsum(weights) / weights.sum()
    start = _generator((*key, 1)).random()
    points = (np.arange(len(samples)) + start) / len(samples)
    chosen: NDArray[np.int64] = samples[np.searchsorted(edges, points).clip(max=len(samples) - 1)]
    return chosen


def _permutation(key: tuple[int, ...], count: int) -> NDArray[np.int64]:
    return _generator(key).permutation(count)


def _generator(key: tuple[int, ...]) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))
