"""`auto`: measures what a step, a sync and the noise of gradients are, and chooses how often replicas sync."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, sqrt
from statistics import fmean, median
from time import perf_counter
from typing import Any, Self, TypeVar

import torch
from torch import Tensor

from deepex.fabric import Fabric
from deepex.sync.background import Background
from deepex.sync.compressors.compressor import Compressor, Uncompressed
from deepex.sync.local import Local
from deepex.sync.noise import NoiseMeter
from deepex.sync.spec import SyncSpec
from deepex.sync.sync import SyncContext, SyncTraits

V = TypeVar("V")

PROBED_SYNCS = 4  # as many first steps end with a sync each
WORTHWHILE = 1.1  # a new choice must be so much better than the present one
CALM = 20  # see Auto
LEAST_NOISE, MOST_NOISE = 0.01, 1e4  # in units of the batch of all ranks: what a few syncs can tell


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was seen, the same on all ranks.

    Attributes:
        step_seconds: of a step without its sync, the mean over ranks.
        sync_seconds: of the rank that waited least, which waited for the network and not for others.
        noise: B, the samples whose gradient has as much noise as signal, in units of the batch of all ranks.
    """

    step_seconds: float
    sync_seconds: float
    noise: float

    @property
    def critical(self) -> float:
        """C: the number of local steps that cost twice the samples."""
        return CALM * (1 + self.noise)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """H, whether syncs hide behind steps, and what that should cost against steps that need no sync."""

    interval: int
    overlaps: bool
    cost: float

    def __str__(self) -> str:
        return f"{'background' if self.overlaps else 'local'}:{self.interval}"


class Auto:
    """Chooses H, and whether to overlap, to minimise the predicted time to the target.

    With t the seconds of a step, s those of a sync, and B the noise scale in units of the batch of all ranks: one
    step with H times the batch would need 1 + H/B times the samples. H local steps follow the path instead of leaping,
    and lose far less: 1 + H/C with C = 20 (1 + B), where 20 is what runs showed (docs/log.md). So the time to a given
    quality goes as

        local:       (t + s/H) (1 + H/C), least at H = sqrt(s C / t)
        background:  max(t, s/H) (1 + 2H/C), since what comes is H steps old; H is twice s/t, so that it has come

    B is found from the replicas themselves: of the changes d_p that ranks made since the last sync, mean |d_p|^2 is
    signal and noise, and |mean d_p|^2 signal and a P-th of the noise. The first steps sync each time; the choice is
    looked at again after every epoch, since noise grows as training goes on: by the syncs of the epoch, or by the one
    at its end where they were in the background. What was seen, and why which choice was made, stands in the
    record. It depends on a clock, so runs don't repeat bit for bit; the choice does, if it is then written as
    `local:H`.

    References: McCandlish et al., An empirical model of large-batch training, 2018, for B and 1 + H/B; the choice of H
    was left open in DeepEx.
    """

    def __init__(self, compressor: Compressor | None = None) -> None:
        self.compressor = compressor or Uncompressed()
        self.traits = SyncTraits(chooses_interval=True)
        self.lockstep: Fabric
        self.notes: dict[str, Any] = {"choices": []}
        self.noise = NoiseMeter()
        self._step_seconds: list[float] = []
        self._sync_seconds: list[float] = []
        self._squares: list[tuple[float, float, int]] = []  # of own and of mean changes, after how many steps
        self._noise: float | None = None  # as last seen
        self._alone = 0  # steps since the last sync was, or was begun

    @classmethod
    def parse(cls, spec: SyncSpec, compressor: Compressor) -> Self:
        spec.takes()
        if compressor.name:
            raise spec.wrong("auto chooses with numbers as they are", "Write --sync auto, or local:8+bf16.")
        return cls(compressor)

    def num_training_ranks(self, num_ranks: int) -> int:
        return num_ranks

    def prepare(self, context: SyncContext) -> None:
        self.context = replace(context, measures_noise=False)  # the chosen strategy need not look: this one does
        self.replica, self.lockstep = context.replica, context.fabric
        self.noise.begin(self.lockstep.world.size, context.batch, context.momentum)
        self._current: Local | Background = Local(1)
        self._current.prepare(self.context)
        self._chosen = torch.tensor([1.0, 0.0, 0.0])  # H, whether it overlaps, whether it was chosen by measuring
        self._anchor = self.replica.weights.clone()
        self._returned = perf_counter()

    def mix_gradients(self, step: int) -> bool:
        self._go_on()
        return self._current.mix_gradients(step)

    def mix_weights(self, step: int) -> bool:
        if self.lockstep.world.size == 1:
            return False
        called = perf_counter()
        if self._returned < inf:
            self._step_seconds.append(called - self._returned)
        self._alone += 1
        is_due = (step + 1) % self.interval == 0
        if is_due and isinstance(self._current, Local):
            changed = self._watch(lambda: self._current.mix_weights(step))
            if not self._chosen[2] and len(self._sync_seconds) == PROBED_SYNCS:
                self._choose(f"step {step + 1}")
        else:
            changed = self._current.mix_weights(step)
        if is_due:
            self._alone = 0
        self._returned = perf_counter()
        return changed

    def drain(self) -> None:
        if self.lockstep.world.size == 1:
            return
        if isinstance(self._current, Background):
            if (mean := self._current.wait_pending()) is not None:
                self._anchor.copy_(mean)
            self._watch(self._current.drain)
        else:
            self._current.drain()
            self._anchor.copy_(self.replica.weights)
        self._alone = 0
        if self._chosen[2] and self._sync_seconds and self._step_seconds and (self._squares or self._noise):
            self._choose("the end of an epoch")
        self._returned = inf  # evaluation is no part of a step

    def state(self) -> dict[str, Tensor]:
        return {"chosen": self._chosen, "anchor": self._anchor}

    @property
    def interval(self) -> int:
        return int(self._chosen[0])

    def _watch(self, sync: Callable[[], V]) -> V:
        """Sync, and note how long it took and how far replicas had gone since the last time, each and together."""
        own, begun = self._distance(), perf_counter()
        result = sync()
        self._sync_seconds.append(perf_counter() - begun)
        if self._alone:
            self._squares.append((own, self._distance(), self._alone))
            self.noise.add_change(*self._squares[-1])
        self._anchor.copy_(self.replica.weights)
        return result

    def _distance(self) -> float:
        """The square of how far the weights are from those of the last sync."""
        return float(torch.dist(self.replica.weights, self._anchor)) ** 2

    def _choose(self, when: str) -> None:
        """Look at what all ranks have seen, and change the choice if that pays."""
        measured = self._look()
        now = predict(self.interval, overlaps=bool(self._chosen[1]), measured=measured)
        best = choose(measured, self.context.steps_per_epoch, can_overlap=self.lockstep.overlaps)
        changes = not self._chosen[2] or now.cost > WORTHWHILE * best.cost
        used = best if changes else now
        self.notes["choices"].append(
            {
                "when": when,
                "sync": str(used),
                "step_seconds": measured.step_seconds,
                "sync_seconds": measured.sync_seconds,
                "noise": measured.noise,
                "why": explain(used, best, measured),
            }
        )
        self._chosen.copy_(torch.tensor([used.interval, used.overlaps, 1.0]))
        self._step_seconds, self._sync_seconds, self._squares = [], [], []

    def _look(self) -> Measured:
        mine = (median(self._step_seconds), median(self._sync_seconds), self._squares)
        found = self.lockstep.gather(mine)
        if self._squares:
            self._noise = find_noise([squares for _, _, squares in found])
        assert self._noise is not None, "the first choice has seen syncs"
        return Measured(
            step_seconds=fmean(step for step, _, _ in found),
            sync_seconds=min(seconds for _, seconds, _ in found),
            noise=self._noise,
        )

    def _go_on(self) -> None:
        """Change to what was chosen, here or in a checkpoint."""
        overlaps = isinstance(self._current, Background)
        if (self.interval, bool(self._chosen[1])) == (self._current.interval, overlaps):
            return
        self._current.drain()
        self._current = Background(self.interval) if self._chosen[1] else Local(self.interval)
        self._current.prepare(self.context)
        self._anchor.copy_(self.replica.weights)
        self._returned = perf_counter()


def find_noise(ranks: Sequence[Sequence[tuple[float, float, int]]]) -> float:
    """B, from what each rank saw at each sync: the squares of its own and of the mean change, and their steps.

    >>> find_noise([[(3.0, 2.0, 1)], [(5.0, 2.0, 1)]])  # own changes are nothing but noise
    10000.0
    >>> find_noise([[(3.0, 3.0, 2)], [(3.0, 3.0, 2)]])  # and here all the same
    0.01
    """
    size = len(ranks)
    noises = [(fmean(own for own, _, _ in seen), seen[0][1], seen[0][2]) for seen in zip(*ranks, strict=True)]
    own, mean = (sum(each[index] / each[2] for each in noises) for index in (0, 1))
    signal = (size * mean - own) / (size - 1)
    noise = (own - signal) / max(signal, 1e-30) / size * fmean(steps for _, _, steps in noises)
    return min(max(noise, LEAST_NOISE), MOST_NOISE) if signal > 0 else MOST_NOISE


def choose(measured: Measured, steps_per_epoch: int, *, can_overlap: bool) -> Choice:
    """The cheapest choice by the model.

    >>> str(choose(Measured(step_seconds=0.1, sync_seconds=0.4, noise=3.0), 100, can_overlap=False))
    'local:18'
    """
    ratio = measured.sync_seconds / measured.step_seconds
    wanted = min(max(1, round(sqrt(ratio * measured.critical))), steps_per_epoch)
    choices = [predict(wanted, overlaps=False, measured=measured)]
    if can_overlap and 2 * ratio <= steps_per_epoch:
        choices.append(predict(max(1, ceil(2 * ratio)), overlaps=True, measured=measured))
    return min(choices, key=lambda choice: choice.cost)


def predict(interval: int, *, overlaps: bool, measured: Measured) -> Choice:
    """What a choice should cost: time to the target, against one without syncs and without noise."""
    share = measured.sync_seconds / measured.step_seconds / interval
    lag = interval / measured.critical
    cost = max(1.0, share) * (1 + 2 * lag) if overlaps else (1 + share) * (1 + lag)
    return Choice(interval=interval, overlaps=overlaps, cost=cost)


def explain(used: Choice, best: Choice, measured: Measured) -> str:
    """Why, in a sentence."""
    kept = f"; {best} would be better by less than a tenth" if best.cost < used.cost else ""
    return (
        f"{used}: a step takes {1e3 * measured.step_seconds:.3g} ms and a sync {1e3 * measured.sync_seconds:.3g} "
        f"ms, and gradients have as much noise as signal at {measured.noise:.3g} times the batch{kept}"
    )
