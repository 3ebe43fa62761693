"""How noisy gradients are, from squares: of each rank's own, and of the mean of all, in one step out of many.

It adds squares up. Whether they are of gradients or of changes of weights, and when, a strategy knows.
"""

from collections.abc import Iterable, Mapping
from math import ceil, isfinite
from typing import NamedTuple

import torch
from torch import Tensor

GRADIENT_STEPS = 32  # looking at a gradient takes a fifth of the leanest step, which uses each weight for two samples
CHANGE_STEPS = 128  # and looking at a change of weights two thirds
PIECE = 2**17  # numbers whose squares are added in float32, where caches hold them


class Look(NamedTuple):
    """The squares of what a rank and all ranks together did, and how many times |G|^2 and s are in them."""

    own: Tensor | float
    mean: Tensor | float
    signals: float
    noises: float


class NoiseMeter:
    """Adds up what a strategy sees of signal and noise, until `take` hands it out.

    With G the true gradient, s the trace of the covariance of a sample's gradient, P ranks and b samples on each, a
    rank's own gradient g_p and the mean of all are expected to have

        |g_p|^2 = |G|^2 + s/b,   |mean g_p|^2 = |G|^2 + s/(bP)

    which gives |G|^2 and s. In a change of weights over H steps signals add up and noise partly cancels, so that its
    square holds H^2 |G|^2 and N s, times a factor that falls out: N = H without momentum, and with a momentum m, by
    which a change goes on after its step, N = H - 2m (1 - m^H) / (1 - m^2). That takes the path for a straight one, and
    is in the measure of an optimiser that rescales gradients: less exact than from gradients.

    It sees nothing before `begin`, nor with one rank.

    Reference: McCandlish et al., An empirical model of large-batch training, 2018.
    """

    def __init__(self) -> None:
        self._num_ranks, self._batch, self._momentum = 1, 0, 0.0
        self._looks: list[Look] = []

    def begin(self, num_ranks: int, batch: int, momentum: float = 0.0) -> None:
        """Look from here on, at as many ranks with as many samples in a step of each."""
        self._num_ranks, self._batch, self._momentum = num_ranks, batch, momentum

    def is_due(self, step: int) -> bool:
        """Whether to look at the gradient of a step."""
        return self._num_ranks > 1 and step % GRADIENT_STEPS == 0

    def is_change_due(self, step: int, interval: int) -> bool:
        """Whether to look at the change of weights that begins in a step, where replicas sync every `interval`."""
        return self._num_ranks > 1 and step // interval % ceil(CHANGE_STEPS / interval) == 0

    def add_gradient(self, own: Tensor, mean: Tensor) -> None:
        """The squares of this rank's gradient and of the mean of all; they stay on their device until `take`."""
        self._looks.append(Look(own, mean, 1.0, 1.0))

    def add_change(self, own: Tensor | float, mean: Tensor | float, steps: int) -> None:
        """The squares of the changes of weights, this rank's and the mean of all, in so many steps."""
        momentum = self._momentum
        noisy_steps = steps - 2 * momentum * (1 - momentum**steps) / (1 - momentum**2)
        self._looks.append(Look(own, mean, float(steps**2), noisy_steps))

    def take(self) -> dict[str, float] | None:
        """Sums of |G|^2 and of s as this rank saw them since the last call, for `noise_scale`; None if it saw none.

        >>> meter = NoiseMeter()
        >>> meter.begin(num_ranks=2, batch=8)
        >>> meter.add_change(own=12.0, mean=8.0, steps=2)
        >>> meter.take(), meter.take()
        ({'signal': 1.0, 'noise': 32.0}, None)
        """
        looks = [(float(look.own), float(look.mean), look.signals, look.noises) for look in self._looks]
        self._looks = []
        seen = [look for look in looks if isfinite(look[0]) and isfinite(look[1])]  # fp16's overflows are dropped
        if not seen:
            return None
        size, others = self._num_ranks, self._num_ranks - 1
        return {
            "signal": sum((size * mean - own) / others / signals for own, mean, signals, _ in seen),
            "noise": sum(self._batch * size * (own - mean) / others / noises for own, mean, _, noises in seen),
        }


class ChangeWatch:
    """Looks at how far a replica goes from one sync to the next, and how far their mean.

    Arguments:
        meter: where that is added up.
        weights: the replica's.
    """

    def __init__(self, meter: NoiseMeter, weights: Tensor) -> None:
        self.meter, self.weights = meter, weights
        self._copy: Tensor | None = None
        self._start: Tensor | None = None  # the weights after the last sync, if the next one is looked at
        self._own: Tensor | None = None
        self._steps = 0

    def begin(self, anchor: Tensor | None) -> None:
        """Look at the next sync; `anchor` is the weights as they are now, if somebody keeps them anyway."""
        if anchor is None:
            self._copy = torch.empty_like(self.weights) if self._copy is None else self._copy
            anchor = self._copy.copy_(self.weights)
        self._start, self._steps = anchor, 0

    def count_step(self) -> None:
        self._steps += 1

    def see_own(self) -> None:
        """Before replicas meet."""
        if self._start is not None:
            self._own = square_distance(self.weights, self._start)

    def see_mean(self, change: Tensor | None = None) -> None:
        """When they have met; `change` is their mean change, if the weights don't show it."""
        if self._start is not None and self._own is not None:
            mean = square_distance(self.weights, self._start) if change is None else square(change)
            self.meter.add_change(self._own, mean, self._steps)
        self._start = self._own = None


def noise_scale(ranks: Iterable[Mapping[str, float] | None]) -> float | None:
    """B = s / |G|^2 in samples, from what the ranks have taken; None if nobody saw any, or more noise than can be told.

    A batch of B samples has as much noise as signal: far below it twice the batch does twice the good, far above none.

    >>> noise_scale([{"signal": 1.0, "noise": 60.0}, {"signal": 2.0, "noise": 30.0}, None])
    30.0
    >>> noise_scale([{"signal": -0.1, "noise": 60.0}, {"signal": 0.0, "noise": 30.0}])
    """
    told = [rank for rank in ranks if rank is not None]
    signal, noise = (sum(rank[name] for rank in told) for name in ("signal", "noise"))
    return max(0.0, noise) / signal if signal > 0 else None


def square(tensor: Tensor) -> Tensor:
    """|x|^2 in float64; in float32 the sum over a large network would be off by more than some noise."""
    return torch.stack([torch.dot(piece, piece) for piece in torch.split(tensor, PIECE)]).sum(dtype=torch.float64)


def square_distance(tensor: Tensor, other: Tensor) -> Tensor:
    """|x - y|^2 in float64; leaves both as they are."""
    between = torch.empty_like(tensor[:PIECE])
    squares = []
    for mine, theirs in zip(torch.split(tensor, PIECE), torch.split(other, PIECE), strict=True):
        torch.sub(mine, theirs, out=between[: len(mine)])
        squares.append(torch.dot(between[: len(mine)], between[: len(mine)]))
    return torch.stack(squares).sum(dtype=torch.float64)
