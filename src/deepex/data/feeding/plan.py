"""Plan: which rank reads which sample when. A pure function of a few numbers; it touches no data."""

from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from deepex.errors import ConfigError
from deepex.world import World

Shuffle = Literal["global", "local"]
Last = Literal["drop", "pad"]


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
        memory_gib: how much memory a rank may use in all; samples are kept in what the network leaves of it. None
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


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The order of samples of one rank.

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
