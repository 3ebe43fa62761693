"""From what ranks measured to the rows of the record: a rank's epoch, an epoch of all ranks, the outcome."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

from deepex.record.counters import Counters
from deepex.record.phases import BESIDE_PHASES, STEP_PHASES, Clock
from deepex.record.rows import Cutoff, Diagnosis, EpochRow, RankRow, StepCost, Summary
from deepex.sync.noise import NoiseMeter, noise_scale
from deepex.train.checkpoint import Position
from deepex.train.recipe import Recipe
from deepex.train.task import Loss, Tally, Target


def rank_row(
    position: Position, steps: int, clock: Clock, counters: Counters, noise: NoiseMeter, seconds: float
) -> RankRow:
    """What a rank tells of the epoch that it ends, in which it had `steps` batches."""
    times, counts = clock.take(), counters.take()
    return RankRow(
        epoch=position.epoch + 1,
        seconds=seconds,
        trains=steps > 0,
        losses={name: total / steps for name, total in position.loss_sums.items()},
        **vars(times),
        **vars(counts),
        gradient_noise=noise.take(),
    )


def epoch_row(recipe: Recipe, ranks: Sequence[RankRow], tally: Tally, diagnosis: Diagnosis | None) -> EpochRow:
    """A line of metrics.jsonl; losses and phases are means over ranks, the wall time that of the slowest."""
    joules = {rank.machine: rank.energy_joules for rank in ranks if rank.machine is not None}  # each machine once
    trained = [rank for rank in ranks if rank.trains]
    epoch = ranks[0].epoch
    steps, wall = max(rank.steps for rank in trained), max(rank.step_wall_seconds for rank in trained)
    samples = steps * recipe.data.batch * len(trained)
    return EpochRow(
        epoch=epoch,
        seconds=max(rank.seconds for rank in ranks),
        losses={name: fmean(rank.losses[name] for rank in trained) for name in trained[0].losses},
        metric=recipe.target.metric,
        value=tally.value,
        beside=tally.values_beside,
        learning_rate=recipe.learning_rate(epoch - 1 / max(steps, 1)),  # that of the last step
        batch=recipe.data.batch * len(trained),
        steps=steps,
        samples=samples,
        samples_per_second=samples / wall if wall else 0.0,  # resumed behind the last step: only evaluated
        step_wall_seconds=fmean(rank.step_wall_seconds for rank in trained),
        phase_seconds=_mean_phases(trained),
        sync_hidden_seconds=fmean(rank.sync_hidden_seconds for rank in trained),
        noise_scale=noise_scale(rank.gradient_noise for rank in trained),
        energy_joules=_total(list(joules.values())),
        diagnosis=diagnosis,
    )


def add_losses(sums: dict[str, float], loss: Loss) -> str:
    """Add a step's loss and its parts to sums by name; what is not a finite number, in words, else nothing."""
    for name, tensor in {"loss": loss.total, **loss.parts}.items():
        value = tensor.item()
        if not math.isfinite(value):
            return f"the {name} is {value}"
        sums[name] = sums.get(name, 0.0) + value
    return ""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """What a run knows at its end, beside the rows that it wrote.

    Attributes:
        step_costs: each rank's.
        peak_bytes: the most memory that each rank has had.
        sync_notes: what the strategy found out and chose.
    """

    position: Position
    step_costs: Sequence[StepCost]
    peak_bytes: Sequence[int]
    weights_sha256: str
    sync_notes: Mapping[str, Any]
    diagnosis: Diagnosis | None


def summarise(recipe: Recipe, fabric_name: str, rows: Sequence[EpochRow], ending: Ending) -> Summary:
    """The outcome of a run, from its own rows."""
    position, target = ending.position, recipe.target
    timed = [row for row in rows if row.samples]
    wall, steps = sum(row.step_wall_seconds for row in rows), sum(row.steps for row in rows)
    rates = [cost.flops_per_step * steps / wall if wall else 0.0 for cost in ending.step_costs]
    peaks = [cost.gemm_flops_per_second for cost in ending.step_costs]  # none of a rank that only serves
    shares = [rate / peak for rate, peak in zip(rates, peaks, strict=True) if peak]
    return Summary(
        task=recipe.task.name,
        ranks=len(ending.step_costs),
        sync=recipe.sync,
        precision=recipe.precision,
        fabric=fabric_name,
        threads=ending.step_costs[0].threads,
        metric=target.metric,
        value=rows[-1].value,
        beside=rows[-1].beside,
        target=target.threshold,
        direction=target.direction,
        target_reached=position.epochs_to_target is not None,
        epochs=position.epoch,
        epochs_to_target=position.epochs_to_target,
        seconds=position.seconds,
        seconds_to_target=position.seconds_to_target,
        cutoffs=tuple(_first_passing(rows, target, cutoff) for cutoff in target.cutoffs),
        samples_per_second=sum(row.samples for row in timed)
        / (sum(row.samples / row.samples_per_second for row in timed) or math.inf),
        phase_seconds={name: sum(row.phase_seconds[name] for row in rows) for name in STEP_PHASES + BESIDE_PHASES},
        sync_hidden_seconds=sum(row.sync_hidden_seconds for row in rows),
        step_wall_seconds=wall,
        gflops_per_second=sum(rates) / 1e9,
        share_of_peak=fmean(shares) if shares else 0.0,
        peak_memory_gib=max(ending.peak_bytes) / 2**30,
        noise_scale=_late_median([row.noise_scale for row in rows]),
        energy_joules=_total([row.energy_joules for row in rows]),
        diagnosis=ending.diagnosis,
        sync_notes=dict(ending.sync_notes),
        weights_sha256=ending.weights_sha256,
    )


def _first_passing(rows: Sequence[EpochRow], target: Target, cutoff: float) -> Cutoff:
    """When a run first passed a cut-off on the way to its target."""
    row = next((row for row in rows if replace(target, threshold=cutoff).reached(row.value)), None)
    return Cutoff(value=cutoff) if row is None else Cutoff(value=cutoff, epochs=row.epoch, seconds=row.seconds)


def _total(parts: Sequence[float | None]) -> float | None:
    """The sum of what is known in full.

    >>> _total([1.0, 2.0]), _total([1.0, None]), _total([])
    (3.0, None, None)
    """
    known = [part for part in parts if part is not None]
    return sum(known) if known and len(known) == len(parts) else None


def _late_median(values: Sequence[float | None]) -> float | None:
    """The median of the last half of what is known: what changes as training goes on, as it was in the end.

    >>> _late_median([1.0, None, 40.0, 50.0, None, 60.0]), _late_median([None])
    (55.0, None)
    """
    known = [value for value in values if value is not None]
    return median(known[len(known) // 2 :]) if known else None


def _mean_phases(ranks: Sequence[RankRow]) -> dict[str, float]:
    return {name: fmean(rank.phase_seconds[name] for rank in ranks) for name in STEP_PHASES + BESIDE_PHASES}
