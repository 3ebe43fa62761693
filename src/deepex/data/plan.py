"""Plan: which rank reads which sample when. A pure function of a few numbers; it touches no data."""

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from deepex.errors import ConfigError
from deepex.world import World


@dataclass(frozen=True, kw_only=True)
class PlanConfig:
    """How samples become batches.

    `batch` counts the samples of one rank in one step. `shuffle` is `global` (one order for all ranks, the same
    whatever their number) or `local` (a rank owns a share of the samples and permutes it, as DeepEx does).
    """

    batch: int = 64
    shuffle: Literal["global", "local"] = "global"

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ConfigError(f"data.batch = {self.batch}. Allowed: whole numbers from 1.")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The order of samples of one rank.

    Every rank takes the same number of steps an epoch; the last partial batch of an epoch is left out, and as
    the order changes from epoch to epoch, so does what is left out.

    >>> Plan(num_samples=10, batch=2, seed=0, shuffle="global", rank=1, size=2).steps_per_epoch
    2
    """

    num_samples: int
    batch: int
    seed: int
    shuffle: Literal["global", "local"]
    rank: int = 0
    size: int = 1

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
    def for_rank(cls, config: PlanConfig, num_samples: int, seed: int, world: World) -> Self:
        """The plan of one rank of a world."""
        return cls(
            num_samples=num_samples,
            batch=config.batch,
            seed=seed,
            shuffle=config.shuffle,
            rank=world.rank,
            size=world.size,
        )

    @property
    def steps_per_epoch(self) -> int:
        return self.num_samples // (self.batch * self.size)

    def indices(self, epoch: int) -> NDArray[np.int64]:
        """This rank's samples of an epoch, one row a step."""
        rows = self.steps_per_epoch
        if self.shuffle == "local":
            share = self.num_samples // self.size
            owned = _permutation((self.seed,), self.num_samples)[self.rank * share : (self.rank + 1) * share]
            mine = owned[_permutation((self.seed, epoch, self.rank), share)]
            return mine[: rows * self.batch].reshape(rows, self.batch)
        order = _permutation((self.seed, epoch), self.num_samples)
        return order[: rows * self.batch * self.size].reshape(rows, self.size, self.batch)[:, self.rank]


def _permutation(key: tuple[int, ...], count: int) -> NDArray[np.int64]:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key))).permutation(count)
