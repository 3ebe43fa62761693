"""The step benchmark: every way to train a workload, in processes of their own that take turns on all cores.

Turns are short and interleaved, so that a noisy machine is noisy for all. It knows processes and their answers, and
nothing of what they compute.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from math import exp, log
from statistics import fmean, median
from typing import Any

from deepex.bench.step.variants import PEERS, VARIANTS
from deepex.bench.step.workloads import SCIENCE, WORKLOADS
from deepex.errors import TrainingError

SLOW_SECONDS = 120.0  # a variant that takes longer for all its turns takes fewer of them


@dataclass(frozen=True, kw_only=True)
class Row:
    """One variant of one workload; times are medians over turns, of one step.

    Attributes:
        spread: the middle half of the wall times, as a share of their median.
        ratio: the plain loop's wall time over this one's: above 1 is faster.
        share_of_peak: of the measured rate of a matrix product in the same precision.
        phases_share: what the five phases add up to, as a share of the steps' wall time (deepex alone).
        recording_share: what recording them costs, as a share of a step (deepex alone).
    """

    workload: str
    variant: str
    wall_ms: float
    cpu_ms: float
    spread: float
    ratio: float
    share_of_peak: float
    gflops_per_second: float
    turns: int
    phases_share: float | None = None
    recording_share: float | None = None


class Worker:
    """A process that trains one variant when it is told to."""

    def __init__(self, workload: str, variant: str, process: "subprocess.Popen[str]", errors: Any) -> None:
        self.name, self.process, self.errors = f"{variant} on {workload}", process, errors
        self.seconds: list[tuple[float, float]] = []

    def ask(self, command: str) -> dict[str, Any]:
        """Give a command and wait for its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.errors.seek(0)
            told = self.errors.read().strip().splitlines()[-5:]
            raise TrainingError(f"{self.name} ended by itself: " + " ".join(told))
        answer: dict[str, Any] = json.loads(line)
        return answer

    def take_turn(self, steps: int) -> None:
        answer = self.ask(f"run {steps}")
        self.seconds.append((answer["wall_seconds"], answer["cpu_seconds"]))


def measure(names: Sequence[str], variants: Sequence[str], repeats: int, log: Callable[[str], None]) -> list[Row]:
    """A row for each workload and variant."""
    rows = []
    for name in names:
        rows += measure_workload(name, variants, repeats, log)
    return rows


def measure_workload(name: str, variants: Sequence[str], repeats: int, log: Callable[[str], None]) -> list[Row]:
    """All variants of one workload, taking turns."""
    steps = WORKLOADS[name].steps
    with ExitStack() as stack:
        workers = {}
        for variant in variants:
            log(f"{name}: starting {variant}")
            worker = workers[variant] = stack.enter_context(start_worker(name, variant))
            worker.take_turn(steps)  # warms up
            worker.take_turn(1)  # tells how many turns are affordable
        allowed = {
            variant: max(1, min(repeats, int(SLOW_SECONDS / (steps * worker.seconds[-1][0]))))
            for variant, worker in workers.items()
        }
        for worker in workers.values():
            worker.seconds.clear()
        peaks: dict[str, list[float]] = {"plain": [], "deepex-bf16": []}
        for turn in range(repeats):
            log(f"{name}: turn {turn + 1} of {repeats}")
            for variant, measured in peaks.items():
                dtype = "bf16" if variant == "deepex-bf16" else "fp32"
                measured.append(workers[variant].ask(f"peak {dtype}")["flops_per_second"])
            for variant in _rotate(variants, turn):
                if turn < allowed[variant]:
                    workers[variant].take_turn(steps)
        flops = workers[variants[0]].ask("flops")["flops"]
        return [_row(name, variant, workers, flops, peaks) for variant in variants]


@contextmanager
def start_worker(workload: str, variant: str) -> Iterator[Worker]:
    """A process for one variant, ended on leaving."""
    command = [sys.executable, "-W", "ignore", "-m", "deepex.bench.step", workload, variant]
    with tempfile.TemporaryFile("w+") as errors:
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True) as process:
            try:
                yield Worker(workload, variant, process, errors)
            finally:
                process.kill()


def available_variants() -> tuple[list[str], list[str]]:
    """The variants that can run here, and the packages that others would need."""
    missing = [package for package in PEERS.values() if find_spec(package) is None]
    return [name for name in VARIANTS if PEERS.get(name) not in missing], missing


def speedups(rows: Sequence[Row], variant: str) -> dict[str, float]:
    """A variant's speed over the best of plain loop, Lightning and Accelerate, by workload."""
    best: dict[str, float] = {}
    for row in rows:
        if not row.variant.startswith("deepex"):
            best[row.workload] = min(row.wall_ms, best.get(row.workload, row.wall_ms))
    return {row.workload: best[row.workload] / row.wall_ms for row in rows if row.variant == variant}


def geometric_mean(values: Sequence[float]) -> float:
    """The mean of ratios.

    >>> round(geometric_mean([1.0, 4.0]), 3)
    2.0
    """
    return exp(fmean(log(value) for value in values))


def science_mean(rows: Sequence[Row], variant: str) -> float | None:
    """The geometric mean of a variant's speedups over the science workloads; none if one was not measured."""
    found = speedups(rows, variant)
    return geometric_mean([found[name] for name in SCIENCE]) if set(SCIENCE) <= set(found) else None


def to_json(rows: Sequence[Row]) -> str:
    return json.dumps([asdict(row) for row in rows], indent=2) + "\n"


def _rotate(variants: Sequence[str], turn: int) -> list[str]:
    first = turn % len(variants)
    return [*variants[first:], *variants[:first]]


def _row(name: str, variant: str, workers: dict[str, Worker], flops: int, peaks: dict[str, list[float]]) -> Row:
    wall = [seconds for seconds, _ in workers[variant].seconds]
    peak = median(peaks.get(variant, peaks["plain"]))
    rate = flops / median(wall)
    row: dict[str, Any] = {}
    if variant.startswith("deepex"):
        told = workers[variant].ask("phases")
        row["phases_share"] = sum(told["phase_seconds"].values()) / told["step_wall_seconds"]
        row["recording_share"] = told["recording_seconds"] / median(wall)
    return Row(
        workload=name,
        variant=variant,
        wall_ms=1e3 * median(wall),
        cpu_ms=1e3 * median(cpu for _, cpu in workers[variant].seconds),
        spread=_middle_half(wall) / median(wall),
        ratio=median(seconds for seconds, _ in workers["plain"].seconds) / median(wall),
        share_of_peak=rate / peak,
        gflops_per_second=rate / 1e9,
        turns=len(wall),
        **row,
    )


def _middle_half(values: list[float]) -> float:
    """The distance between the quartiles."""
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return ordered[-1 - quarter] - ordered[quarter]
