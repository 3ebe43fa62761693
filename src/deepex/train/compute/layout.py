"""Layout: how convolutions keep their images, as the recipe says, as the network declares, or as a clock finds."""

import copy
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Literal

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

from deepex.replica import LaidOut, Layout, Replica

LayoutChoice = Literal["auto", "contiguous", "channels_last"]
BOTH: tuple[Layout, Layout] = ("contiguous", "channels_last")
TIMED_STEPS = 3  # of each layout, taking turns, after one that is not timed

Trial = Callable[[Replica], None]
"""One forward and backward of a replica on a real batch."""


def resolve_layout(asked: LayoutChoice, model: nn.Module, trial: Trial) -> tuple[Layout, str]:
    """The layout of a run, and why, in words.

    Timing two layouts may choose differently on another machine, so whoever calls this writes the answer down.
    """
    if asked != "auto":
        return asked, "as the recipe says"
    if isinstance(model, LaidOut):
        return model.layout, "as the network declares"
    if not any(isinstance(module, _ConvNd) and module.weight.dim() in (4, 5) for module in model.modules()):
        return "contiguous", "the network has no convolutions"
    seconds = _time_layouts(model, trial)
    best = min(BOTH, key=seconds.__getitem__)
    other = next(layout for layout in BOTH if layout != best)
    return (
        best,
        f"{seconds[other] / seconds[best]:.2f} times as fast as {other.replace('_', ' ')} in {TIMED_STEPS} steps",
    )


def _time_layouts(model: nn.Module, trial: Trial) -> dict[Layout, float]:
    """Median seconds of a trial step in each layout, on copies; the random state is put back."""
    seconds: dict[Layout, list[float]] = {layout: [] for layout in BOTH}
    with torch.random.fork_rng():
        replicas = {layout: Replica(copy.deepcopy(model).train(), layout) for layout in BOTH}
        for _ in range(1 + TIMED_STEPS):
            for layout, replica in replicas.items():
                start = perf_counter()
                trial(replica)
                seconds[layout].append(perf_counter() - start)
    return {layout: median(times[1:]) for layout, times in seconds.items()}
