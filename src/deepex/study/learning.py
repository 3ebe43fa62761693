"""Time to equal quality: what learning gains from more ranks, and where the noise of gradients ends it. Pure functions.

S_L = (T_s N_s) / (T_p N_p), with T the seconds of an epoch and N the epochs to a cut-off, alone and on P ranks.
Reference: DeepEx for S_L; McCandlish et al., An empirical model of large-batch training, 2018, for the noise scale.
"""

from collections.abc import Sequence

from deepex.record.study_rows import CutoffRow, Estimate, RunFacts, Saturation
from deepex.study.estimate import compare, estimate

NOT_REACHED = "not reached"


def judge_cutoff(
    place: int, cutoff: float, runs: Sequence[RunFacts], alone: Sequence[RunFacts], failed: tuple[int, int] = (0, 0)
) -> CutoffRow:
    """How runs came to the cut-off of a place, against those of the cell that their speedup is counted from.

    `failed` is how many more runs of the two cells failed: what they would have reached is not known.
    """
    times = None if failed[0] else seconds_to(place, runs)
    times_alone = None if failed[1] else seconds_to(place, alone)
    reached, total = sum(run.epochs_to[place] is not None for run in runs), len(runs) + failed[0]
    if times is None:
        missed = f"{NOT_REACHED} ({reached} of {total} runs)"
        return CutoffRow(cutoff=cutoff, reached=reached, runs=total, why_no_speedup=missed)
    epochs = [float(run.epochs_to[place] or 0) for run in runs]
    speedup: Estimate | None = None
    if runs is alone:
        speedup = Estimate(value=1.0, runs=len(runs))
    elif times_alone is not None:
        speedup = compare(times_alone, times)
    return CutoffRow(
        cutoff=cutoff,
        reached=reached,
        runs=len(runs),
        epochs=estimate(epochs),
        seconds=estimate(times),
        speedup=speedup,
        why_no_speedup=f"{NOT_REACHED} by what it is compared with" if speedup is None else "",
        samples=estimate([number * run.samples for number, run in zip(epochs, runs, strict=True)]),
        core_hours=estimate([time * run.cores / 3600 for time, run in zip(times, runs, strict=True)]),
    )


def seconds_to(place: int, runs: Sequence[RunFacts]) -> list[float] | None:
    """T N of each run; None if one did not get there."""
    times = [run.epoch_seconds * number for run in runs if (number := run.epochs_to[place]) is not None]
    return times if runs and len(times) == len(runs) else None


def find_saturation(noise_scale: float, batch: int) -> Saturation:
    """Where synchronous training gains no more from larger batches.

    With B the noise scale and b the samples that one rank alone takes a step, a step with P b samples is worth
    (1 + B/b) / (1 + B/(P b)) steps with b: half of all that can be had at P = B/b, and never more than 1 + B/b.

    >>> found = find_saturation(512.0, 64)
    >>> found.critical_ranks, found.most_learning_speedup
    (8.0, 9.0)
    """
    ranks = noise_scale / batch
    return Saturation(critical_batch=noise_scale, batch=batch, critical_ranks=ranks, most_learning_speedup=1 + ranks)
