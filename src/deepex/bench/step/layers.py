"""Where a step's time goes, operator by operator and shape by shape, and what lies between each and the GEMM peak.

It looks at deepex's own step while it runs, and counts the operations of each call by the rules of `record/flops`.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from rich.table import Table
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from deepex.bench.step.workloads import Workload
from deepex.fabric import SoloFabric
from deepex.launch.rank import count_threads, set_up_process, share_cores
from deepex.record.flop_rules import RULES
from deepex.record.flops import measure_gemm_peak
from deepex.record.folder import RunFolder
from deepex.record.sinks.progress import Silent
from deepex.text import say_percent
from deepex.train.compute.precision import DTYPES, Precision
from deepex.train.input import open_data
from deepex.train.loop import Loop
from deepex.world import World

WARM_STEPS = 2


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One operator on one shape. `lost_ms` is its time less what it would take at the GEMM peak."""

    operator: str
    shapes: str
    calls: int
    ms: float
    share_of_step: float
    gflops_per_second: float
    share_of_peak: float
    lost_ms: float


class Watch(TorchDispatchMode):
    """Times every operator that it sees, and counts its operations."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch
        self.rules = FlopCounterMode(display=False, custom_mapping=RULES).flop_registry
        self.seen: dict[tuple[str, str], list[tuple[float, int]]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        start = perf_counter()
        out = func(*args, **(kwargs or {}))
        seconds = perf_counter() - start
        rule = self.rules.get(func._overloadpacket)
        flops = rule(*args, **(kwargs or {}), out_val=out) if rule else 0
        shapes = ", ".join("×".join(map(str, arg.shape)) for arg in args if isinstance(arg, Tensor) and arg.dim())
        self.seen.setdefault((func._overloadpacket.__name__, shapes), []).append((seconds, flops))
        return out


def watch_layers(workload: Workload, precision: Precision, steps: int) -> tuple[list[Layer], float]:
    """The operators of a step, the most lost first, and the GEMM peak in FLOP/s that they are held to."""
    fabric = SoloFabric(World())
    torch.manual_seed(0)
    recipe = replace(workload.recipe(), precision=precision)
    set_up_process(recipe, count_threads(share_cores(fabric)))
    peaks = [measure_gemm_peak(torch.device("cpu"), DTYPES[precision])]
    with tempfile.TemporaryDirectory() as folder:
        loop = Loop(recipe, open_data(recipe), fabric, RunFolder.create(Path(folder) / "run"), Silent())
        loop.prepare()
        batch = loop.feed.batch(0, 0)
        loop.replica.model.train()
        for number in range(WARM_STEPS):
            loop.step(batch, number)
        watch = Watch()
        for number in range(steps):
            with watch:
                loop.step(batch, WARM_STEPS + number)
            peaks.append(measure_gemm_peak(torch.device("cpu"), DTYPES[precision]))
    return sorted(_layers(watch, steps, median(peaks)), key=lambda layer: -layer.lost_ms), median(peaks)


def layer_table(layers: list[Layer], top: int) -> Table:
    """The first `top` operators, and the rest in one line."""
    table = Table(
        "operator",
        "shapes",
        "calls",
        "ms",
        "of the step",
        "GFLOP/s",
        "of peak",
        "lost ms",
        box=None,
        padding=(0, 2, 0, 0),
    )
    for layer in layers[:top]:
        rate = (
            (f"{layer.gflops_per_second:,.0f}", say_percent(layer.share_of_peak))
            if layer.gflops_per_second
            else ("", "")
        )
        table.add_row(
            layer.operator,
            layer.shapes,
            str(layer.calls),
            f"{layer.ms:,.1f}",
            say_percent(layer.share_of_step, 1),
            *rate,
            f"{layer.lost_ms:,.1f}",
        )
    rest = layers[top:]
    if rest:
        table.add_row(
            f"{len(rest)} others",
            "",
            str(sum(layer.calls for layer in rest)),
            f"{sum(layer.ms for layer in rest):,.1f}",
            say_percent(sum(layer.share_of_step for layer in rest), 1),
            "",
            "",
            f"{sum(layer.lost_ms for layer in rest):,.1f}",
        )
    return table


def _layers(watch: Watch, steps: int, peak: float) -> list[Layer]:
    total = sum(seconds for calls in watch.seen.values() for seconds, _ in calls)
    layers = []
    for (operator, shapes), calls in watch.seen.items():
        seconds, flops = sum(call[0] for call in calls), sum(call[1] for call in calls)
        layers.append(
            Layer(
                operator=operator,
                shapes=shapes,
                calls=len(calls) // steps,
                ms=1e3 * seconds / steps,
                share_of_step=seconds / total,
                gflops_per_second=flops / seconds / 1e9,
                share_of_peak=flops / seconds / peak,
                lost_ms=1e3 * (seconds - flops / peak) / steps,
            )
        )
    return layers
