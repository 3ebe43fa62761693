"""The third part of the sync benchmark: real runs of the protein task with every strategy, to its target.

Runs are programs of their own, one after the other; this reads their records.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

from deepex.bench.sync.rank_pool import Network, Process, end_all
from deepex.bench.sync.rows import Log, Results, Row

BASE = "allreduce"
STRATEGIES = (
    BASE,
    "allreduce+bf16",
    "local:4",
    "local:16",
    "local:epoch",
    "local:16,outer=nesterov",
    "background:16",
    "lagged",
    "hierarchical(allreduce,local:16)",
    "hybrid:2",
    "async",
    "auto",
    "allreduce+topk:0.01",
    "allreduce+powersgd:2",
)
SECONDS_TO_SAVE = 20.0


@dataclass(frozen=True, kw_only=True)
class LearningPlan:
    """Which strategies, for how many epochs and seconds at most, with how many seeds."""

    strategies: Sequence[str] = STRATEGIES
    epochs: int = 60
    limit_seconds: float = 90.0
    seeds: int = 1


QUICK = LearningPlan(strategies=(BASE, "local:epoch", "auto"), epochs=1)


def measure_learning(plan: LearningPlan, network: Network, folder: Path, results: Results, log: Log) -> None:
    """A row for each run that is not among the results yet."""
    done = {(row.name, row.seed) for row in results.of("learning", network.name)}
    for seed, (number, sync) in product(range(plan.seeds), enumerate(plan.strategies)):
        if (sync, seed) in done:
            log(f"learning, {network.name}, seed {seed}: {sync}: done before")
            continue
        log(f"learning, {network.name}, seed {seed}: {sync}")
        place = folder / f"{seed}-{number}"
        place.mkdir(parents=True)
        results.add(_run(sync, seed, plan, network, place))
    order = {sync: number for number, sync in enumerate(plan.strategies)}
    rows = sorted(
        results.of("learning", network.name), key=lambda row: (row.seed or 0, order.get(row.name, len(order)))
    )
    results.replace("learning", network.name, compare(rows))


def compare(rows: Sequence[Row]) -> list[Row]:
    """The rows with their learning speed against the median of `allreduce`."""
    base = [row.seconds_to_target for row in rows if row.name == BASE and row.seconds_to_target is not None]
    if not base:
        return list(rows)
    return [
        row if row.seconds_to_target is None else replace(row, ratio=median(base) / row.seconds_to_target)
        for row in rows
    ]


def _run(sync: str, seed: int, plan: LearningPlan, network: Network, place: Path) -> Row:
    """One run, as its record tells it; one that takes too long is stopped."""
    out = place / "run"
    command = [sys.executable, "-W", "ignore", "-m", "deepex", "run", "protein", "--quiet"]
    settings = ("--sync", sync, "--seed", str(seed), "--out", str(out), f"stop.epochs={plan.epochs}")
    processes = network.start([*command, *settings], place)
    problem = _wait(processes, plan.limit_seconds)
    row = Row(part="learning", network=network.name, name=sync, ranks=network.num_ranks, seed=seed)
    row = _read_curve(row, out / "metrics.jsonl")
    if not (out / "summary.json").exists():
        return replace(row, error=problem or _last_words(place))
    return _read_summary(row, json.loads((out / "summary.json").read_text()))


def _wait(processes: Sequence[Process], limit_seconds: float) -> str | None:
    """Wait for a run; what was wrong, if its time was up."""
    end = monotonic() + limit_seconds
    problem = None
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, end - monotonic()))
    if any(process.poll() is None for process in processes):
        problem = f"stopped after {limit_seconds:g} s"
        for process in processes:
            process.terminate()
        end_all(processes, SECONDS_TO_SAVE)
    return problem


def _read_curve(row: Row, path: Path) -> Row:
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    if not lines:
        return row
    last = lines[-1]
    return replace(
        row,
        curve=[(line["epoch"], line["seconds"], line["value"]) for line in lines],
        epochs=last["epoch"],
        seconds=last["seconds"],
        metric=last["metric"],
        value=last["value"],
        samples_per_second=median(line["samples_per_second"] for line in lines),
        sync_share=sum(line["phase_seconds"]["sync"] for line in lines)
        / sum(line["step_wall_seconds"] for line in lines),
        target_reached=False,
    )


def _read_summary(row: Row, summary: dict[str, Any]) -> Row:
    return replace(
        row,
        epochs_to_target=summary["epochs_to_target"],
        seconds_to_target=summary["seconds_to_target"],
        samples_per_second=summary["samples_per_second"],
        target_reached=summary["target_reached"],
        native_fraction_r2=summary.get("findings", {}).get("native_fraction_r2"),
        choices=summary["sync_notes"].get("choices"),
    )


def _last_words(place: Path) -> str:
    texts = [path.read_text(errors="replace").strip() for path in sorted(place.glob("rank*.txt"))]
    words = [text.splitlines()[-1] for text in texts if text]
    return words[0] if words else "it ended without a word"
