"""The outcome of epochs and runs as plain values: rows of metrics.jsonl, and summary.json."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import Any

from deepex.fabric import Fabric
from deepex.record.counters import Gauges
from deepex.record.folder import RunFolder
from deepex.record.phases import BESIDE_PHASES, STEP_PHASES, Clock
from deepex.sync.noise import NoiseMeter, noise_scale
from deepex.train.checkpoint import Position
from deepex.train.compute.step_cost import Yardstick
from deepex.train.recipe import Recipe
from deepex.train.task import Loss, Tally, Target


def rank_row(
    position: Position, steps: int, clock: Clock, gauges: Gauges, noise: NoiseMeter, seconds: float
) -> dict[str, Any]:
    """What a rank tells of an epoch in which it had `steps` batches: a line of its phases file."""
    return {
        "trains": steps > 0,
        "losses": {name: total / steps for name, total in position.loss_sums.items()},
        "seconds": seconds,
        **clock.take(),
        **gauges.take(),
        "gradient_noise": noise.take(),
    }


def epoch_row(recipe: Recipe, position: Position, ranks: list[dict[str, Any]], tally: Tally) -> dict[str, Any]:
    """A line of metrics.jsonl; losses and phases are means over ranks, the wall time that of the slowest."""
    joules = {rank["machine"]: rank["energy_joules"] for rank in ranks if "machine" in rank}  # each machine once
    ranks = [rank for rank in ranks if rank["trains"]]
    steps, wall = max(rank["steps"] for rank in ranks), max(rank["step_wall_seconds"] for rank in ranks)
    samples = steps * recipe.data.batch * len(ranks)
    return {
        "epoch": position.epoch,
        "seconds": position.seconds,
        **{name: fmean(rank["losses"][name] for rank in ranks) for name in ranks[0]["losses"]},
        "metric": recipe.target.metric,
        "value": tally.value,
        "beside": tally.values_beside,
        "learning_rate": recipe.learning_rate(position.epoch - 1 / max(steps, 1)),  # that of the last step
        "batch": recipe.data.batch * len(ranks),
        "steps": steps,
        "samples": samples,
        "samples_per_second": samples / wall if wall else 0.0,  # resumed behind the last step: only evaluated
        "step_wall_seconds": fmean(rank["step_wall_seconds"] for rank in ranks),
        "phase_seconds": _mean_phases(ranks),
        "sync_hidden_seconds": fmean(rank["sync_hidden_seconds"] for rank in ranks),
        "noise_scale": noise_scale(rank["gradient_noise"] for rank in ranks),
        "energy_joules": _total(list(joules.values())),
    }


def add_losses(sums: dict[str, float], loss: Loss) -> str:
    """Add a step's loss and its parts to sums by name; what is not a finite number, in words, else nothing."""
    for name, tensor in {"loss": loss.total, **loss.parts}.items():
        value = tensor.item()
        if not math.isfinite(value):
            return f"the {name} is {value}"
        sums[name] = sums.get(name, 0.0) + value
    return ""


def mean_step_seconds(ranks: list[dict[str, Any]]) -> float:
    """Wall seconds of a step, the mean over ranks."""
    return fmean(rank["step_wall_seconds"] / max(rank["steps"], 1) for rank in ranks)


def summarise(
    recipe: Recipe,
    fabric: Fabric,
    folder: RunFolder,
    position: Position,
    yardsticks: Sequence[Yardstick],
    memory: Sequence[int],
) -> dict[str, Any]:
    """The outcome of a run, for programs, from its own record, and from each rank's yardstick and bytes of memory."""
    rows = folder.read_lines("metrics.jsonl")
    timed = [row for row in rows if row["samples"]]
    wall = sum(row["step_wall_seconds"] for row in rows)
    steps = sum(row["steps"] for row in rows)
    rates = [yardstick.flops_per_step * steps / wall for yardstick in yardsticks]
    shares = [rate / yardstick.gemm_flops_per_second for rate, yardstick in zip(rates, yardsticks, strict=True)]
    return {
        "task": recipe.task.name,
        "ranks": len(yardsticks),
        "sync": recipe.sync,
        "precision": recipe.precision,
        "fabric": fabric.name,
        "threads": yardsticks[0].threads,
        "metric": recipe.target.metric,
        "value": rows[-1]["value"],
        "beside": rows[-1]["beside"],
        "target": recipe.target.threshold,
        "target_reached": position.epochs_to_target is not None,
        "epochs": position.epoch,
        "epochs_to_target": position.epochs_to_target,
        "seconds": position.seconds,
        "seconds_to_target": position.seconds_to_target,
        "cutoffs": [_first_below(rows, recipe.target, cutoff) for cutoff in recipe.target.cutoffs],
        "samples_per_second": sum(row["samples"] for row in timed)
        / sum(row["samples"] / row["samples_per_second"] for row in timed),
        "phase_seconds": {
            name: sum(row["phase_seconds"][name] for row in rows) for name in STEP_PHASES + BESIDE_PHASES
        },
        "sync_hidden_seconds": sum(row["sync_hidden_seconds"] for row in rows),
        "step_wall_seconds": wall,
        "gflops_per_second": sum(rates) / 1e9,
        "share_of_peak": fmean(shares),
        "peak_memory_gib": max(memory) / 2**30,
        "noise_scale": _late_median([row.get("noise_scale") for row in rows]),
        "energy_joules": _total([row.get("energy_joules") for row in rows]),
    }


def _first_below(rows: Sequence[Mapping[str, Any]], target: Target, cutoff: float) -> dict[str, Any]:
    """When a run first passed a cut-off on the way to its target; none if it did not."""
    row = next((row for row in rows if replace(target, threshold=cutoff).reached(row["value"])), None)
    epochs, seconds = (row["epoch"], row["seconds"]) if row else (None, None)
    return {"value": cutoff, "epochs": epochs, "seconds": seconds}


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


def _mean_phases(ranks: list[dict[str, Any]]) -> dict[str, float]:
    return {name: fmean(rank["phase_seconds"][name] for rank in ranks) for name in STEP_PHASES + BESIDE_PHASES}
