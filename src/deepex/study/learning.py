"""Time to equal quality: what learning gains from more ranks, and where the noise of gradients ends it. Pure functions.

S_L = (T_s N_s) / (T_p N_p), with T the seconds of an epoch and N the epochs to a cut-off, alone and on P ranks.
Reference: DeepEx for S_L; McCandlish et al., An empirical model of large-batch training, 2018, for the noise scale.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from deepex.study.estimate import Estimate, compare, estimate
from deepex.study.facts import Facts

NOT_REACHED = "not reached"


@dataclass(frozen=True, kw_only=True)
class Reached:
    """How a cell came to a cut-off; figures are None unless every one of its runs did.

    Attributes:
        reached: how many of its runs did.
        epochs, seconds: N, and T N.
        speedup: S_L, or the words for why there is none.
        samples, core_hours: that it took.
    """

    cutoff: float
    reached: int
    runs: int
    epochs: Estimate | None = None
    seconds: Estimate | None = None
    speedup: Estimate | str = NOT_REACHED
    samples: Estimate | None = None
    core_hours: Estimate | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def judge_cutoff(
    place: int, cutoff: float, runs: Sequence[Facts], alone: Sequence[Facts], failed: tuple[int, int] = (0, 0)
) -> Reached:
    """How runs came to the cut-off of a place, against those of the cell that their speedup is counted from.

    `failed` is how many more runs of the two cells failed: what they would have reached is not known.
    """
    times = None if failed[0] else seconds_to(place, runs)
    times_alone = None if failed[1] else seconds_to(place, alone)
    reached, total = sum(run.epochs_to[place] is not None for run in runs), len(runs) + failed[0]
    if times is None:
        return Reached(cutoff=cutoff, reached=reached, runs=total, speedup=f"{NOT_REACHED} ({reached} of {total} runs)")
    epochs = [float(run.epochs_to[place] or 0) for run in runs]
    speedup: Estimate | str = f"{NOT_REACHED} by what it is compared with"
    if runs is alone:
        speedup = Estimate(value=1.0, runs=len(runs))
    elif times_alone is not None:
        speedup = compare(times_alone, times)
    return Reached(
        cutoff=cutoff,
        reached=reached,
        runs=len(runs),
        epochs=estimate(epochs),
        seconds=estimate(times),
        speedup=speedup,
        samples=estimate([number * run.samples for number, run in zip(epochs, runs, strict=True)]),
        core_hours=estimate([time * run.cores / 3600 for time, run in zip(times, runs, strict=True)]),
    )


def seconds_to(place: int, runs: Sequence[Facts]) -> list[float] | None:
    """T N of each run; None if one did not get there."""
    times = [run.epoch_seconds * number for run in runs if (number := run.epochs_to[place]) is not None]
    return times if runs and len(times) == len(runs) else None


@dataclass(frozen=True, kw_only=True)
class Saturation:
    """Where synchronous training gains no more from larger batches.

    With B the noise scale and b the samples that one rank alone takes a step, a step with P b samples is worth
    (1 + B/b) / (1 + B/(P b)) steps with b: half of all that can be had at P = B/b, and never more than 1 + B/b.

    >>> found = Saturation(noise_scale=512.0, batch=64)
    >>> found.critical_ranks, found.most
    (8.0, 9.0)
    """

    noise_scale: float
    batch: int

    @property
    def critical_ranks(self) -> float:
        return self.noise_scale / self.batch

    @property
    def most(self) -> float:
        """The learning speedup that no number of ranks exceeds, at this batch a rank."""
        return 1 + self.noise_scale / self.batch

    def to_json(self) -> dict[str, Any]:
        return {
            "critical_batch": self.noise_scale,
            "batch": self.batch,
            "critical_ranks": self.critical_ranks,
            "most_learning_speedup": self.most,
        }
