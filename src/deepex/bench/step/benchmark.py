"""The step benchmark: every way to train a workload, in processes of their own that take turns on all cores.

Turns are short and interleaved, so that a noisy machine is noisy for all. It knows processes and their answers, and
nothing of what they compute.
"""

import json
import os
import signal
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

from deepex.bench.step.allocator import preload_jemalloc
from deepex.bench.step.variants import CPU, VARIANTS, Kind
from deepex.bench.step.workloads import SCIENCE, WORKLOADS
from deepex.errors import TrainingError
from deepex.train.compute.precision import Precision, has_instructions

SLOW_SECONDS = 120.0  # a variant that takes longer for all its turns takes fewer of them
SLOW_TURN_SECONDS = 60.0  # a warm-up that took longer is the measurement
COMPILE_ALONE = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}  # no helpers, which go on when a compiler is stopped
COMPARED: tuple[Kind, Kind] = ("peer", "expert")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One variant of one workload; times are medians over turns, of one step.

    Attributes:
        spread: the middle half of the wall times, as a share of their median.
        share_of_peak: of the measured rate of a matrix product in the same precision.
        phases_share: what the five phases add up to, as a share of the steps' wall time (deepex alone).
        recording_share: what recording them costs, as a share of a step (deepex alone).
        note: what else is to be known: of an expert, which way of writing the step was the fastest.
    """

    workload: str
    variant: str
    kind: Kind
    precision: Precision
    wall_ms: float
    cpu_ms: float
    spread: float
    share_of_peak: float
    gflops_per_second: float
    turns: int
    phases_share: float | None = None
    recording_share: float | None = None
    note: str = ""


class Worker:
    """A process that trains one variant when it is told to."""

    def __init__(self, name: str, process: "subprocess.Popen[str]", errors: Any, log: Callable[[str], None]) -> None:
        self.name, self.process, self.errors, self.log = name, process, errors, log
        self.seconds: list[tuple[float, float]] = []

    def ask(self, command: str) -> dict[str, Any]:
        """Give a command and wait for its answer; what comes before it is progress."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
            for line in self.process.stdout:
                answer: dict[str, Any] = json.loads(line)
                if "progress" not in answer:
                    return answer
                self.log(f"{self.name}: {answer['progress']}")
        except BrokenPipeError:
            pass
        self.errors.seek(0)
        told = self.errors.read().strip().splitlines()[-5:]
        if self.process.wait() == -signal.SIGKILL:
            told.append("it was killed, as systems do when memory runs out.")
        raise TrainingError(f"{self.name} ended by itself: " + " ".join(told))

    def take_turn(self, steps: int) -> None:
        answer = self.ask(f"run {steps}")
        self.seconds.append((answer["wall_seconds"], answer["cpu_seconds"]))

    def warm_up(self, steps: int, repeats: int) -> int:
        """Train without measuring; how many turns are affordable. None if a turn is so slow that this one counts."""
        self.take_turn(steps)
        if steps * self.seconds[-1][0] > SLOW_TURN_SECONDS:
            return 0
        self.take_turn(1)
        affordable = max(1, min(repeats, int(SLOW_SECONDS / (steps * self.seconds[-1][0]))))
        self.seconds.clear()
        return affordable


def measure(names: Sequence[str], variants: Sequence[str], repeats: int, log: Callable[[str], None]) -> list[Row]:
    """A row for each workload and variant.

    Precisions come one after the other: only variants of the same one are compared, and the memory that their processes
    hold is then half.
    """
    groups: dict[Precision, list[str]] = {}
    for variant in variants:
        groups.setdefault(VARIANTS[variant].precision, []).append(variant)
    rows = []
    for name in names:
        for precision, group in groups.items():
            rows += measure_workload(name, precision, group, repeats, log)
    return rows


def measure_workload(
    name: str, precision: Precision, variants: Sequence[str], repeats: int, log: Callable[[str], None]
) -> list[Row]:
    """The variants of one workload in one precision, taking turns."""
    steps = WORKLOADS[name].steps
    with ExitStack() as stack:
        workers, allowed = {}, {}
        for variant in variants:
            log(f"{name}: starting {variant}")
            worker = workers[variant] = stack.enter_context(start_worker(name, variant, log))
            allowed[variant] = worker.warm_up(steps, repeats)
        # The first computes on all threads. In bf16 it is the last, deepex: where the processor has no instructions for
        # it, deepex multiplies faster than torch does by itself.
        multiplier = workers[variants[0] if precision == "fp32" else variants[-1]]
        peaks = []
        for turn in range(repeats):
            log(f"{name} in {precision}: turn {turn + 1} of {repeats}")
            peaks.append(multiplier.ask(f"peak {precision}")["flops_per_second"])
            for variant in _rotate(variants, turn):
                if turn < allowed[variant]:
                    workers[variant].take_turn(steps)
        flops = workers[variants[0]].ask("flops")["flops"]
        return [_row(name, variant, worker, flops, median(peaks)) for variant, worker in workers.items()]


@contextmanager
def start_worker(workload: str, variant: str, log: Callable[[str], None]) -> Iterator[Worker]:
    """A process for one variant, ended on leaving."""
    command = [sys.executable, "-W", "ignore", "-m", "deepex.bench.step", workload, variant]
    environment = dict(os.environ)
    if VARIANTS[variant].kind == "expert":
        environment |= preload_jemalloc() | COMPILE_ALONE
    with tempfile.TemporaryFile("w+") as errors:
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=errors, text=True) as process:
            try:
                yield Worker(f"{variant} on {workload}", process, errors, log)
            finally:
                process.kill()


def available_variants(named: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """The variants that can run here, of those named or of all that are worthwhile, and the packages that others need.

    A processor without bf16 instructions takes minutes for a step in torch's bf16, whatever stands around the loop: of
    the peers, the plain loop is enough there.
    """
    wanted = [VARIANTS[name] for name in named] or [
        variant for variant in VARIANTS.values() if variant.package is None or has_instructions(variant.precision, CPU)
    ]
    packages = dict.fromkeys(variant.package for variant in wanted if variant.package is not None)
    missing = [package for package in packages if find_spec(package) is None]
    return [variant.name for variant in wanted if variant.package not in missing], missing


def speedups(rows: Sequence[Row], variant: str, against: Kind) -> dict[str, float]:
    """A variant's speed over the fastest of a kind in the same precision, by workload, where there is one."""
    found: dict[str, float] = {}
    for row in (row for row in rows if row.variant == variant):
        others = [
            other.wall_ms
            for other in rows
            if (other.workload, other.precision, other.kind) == (row.workload, row.precision, against)
        ]
        if others:
            found[row.workload] = min(others) / row.wall_ms
    return found


def geometric_mean(values: Sequence[float]) -> float:
    """The mean of ratios.

    >>> round(geometric_mean([1.0, 4.0]), 3)
    2.0
    """
    return exp(fmean(log(value) for value in values))


def science_mean(rows: Sequence[Row], variant: str, against: Kind) -> float | None:
    """The geometric mean of a variant's speedups over the science workloads; none if one was not measured."""
    found = speedups(rows, variant, against)
    return geometric_mean([found[name] for name in SCIENCE]) if set(SCIENCE) <= set(found) else None


def to_json(rows: Sequence[Row]) -> str:
    """The rows, each with its speed over the best peer and over the expert in the same precision."""
    return json.dumps([asdict(row) | _compare(row, rows) for row in rows], indent=2) + "\n"


def _compare(row: Row, rows: Sequence[Row]) -> dict[str, float | None]:
    best_peer, expert = (speedups(rows, row.variant, kind).get(row.workload) for kind in COMPARED)
    return {"times_best_peer": best_peer, "times_expert": expert}


def _rotate(variants: Sequence[str], turn: int) -> list[str]:
    first = turn % len(variants)
    return [*variants[first:], *variants[:first]]


def _row(name: str, variant: str, worker: Worker, flops: int, peak: float) -> Row:
    wall = [seconds for seconds, _ in worker.seconds]
    rate = flops / median(wall)
    phases: dict[str, float] = {}
    told = worker.ask("phases")
    if told["step_wall_seconds"]:  # whoever trains through deepex's loop has a clock
        phases["phases_share"] = sum(told["phase_seconds"].values()) / told["step_wall_seconds"]
        phases["recording_share"] = told["recording_seconds"] / median(wall)
    return Row(
        workload=name,
        variant=variant,
        kind=VARIANTS[variant].kind,
        precision=VARIANTS[variant].precision,
        wall_ms=1e3 * median(wall),
        cpu_ms=1e3 * median(cpu for _, cpu in worker.seconds),
        spread=_middle_half(wall) / median(wall),
        share_of_peak=rate / peak,
        gflops_per_second=rate / 1e9,
        turns=len(wall),
        note=worker.ask("note")["note"],
        **phases,
    )


def _middle_half(values: list[float]) -> float:
    """The distance between the quartiles."""
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return ordered[-1 - quarter] - ordered[quarter]
