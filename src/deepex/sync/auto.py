"""`auto`: measures what a step, a meeting and the noise of gradients are, and chooses how often replicas meet."""

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
from deepex.sync.compressors.compressor import Plain, Wire
from deepex.sync.local import Local
from deepex.sync.noise import NoiseMeter
from deepex.sync.spec import Written
from deepex.sync.sync import Setting

V = TypeVar("V")

PROBED_MEETINGS = 4  # in as many first steps replicas meet after each
WORTHWHILE = 1.1  # a new choice must be so much better than the one at work
CALM = 20  # see Auto
LEAST_NOISE, MOST_NOISE = 0.01, 1e4  # in units of the batch of all ranks: what a few meetings can tell


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was seen, the same on all ranks.

    Attributes:
        step_seconds: of a step without its meeting, the mean over ranks.
        meeting_seconds: of the rank that waited least, which waited for the network and not for others.
        noise: B, the samples whose gradient has as much noise as signal, in units of the batch of all ranks.
    """

    step_seconds: float
    meeting_seconds: float
    noise: float

    @property
    def critical(self) -> float:
        """C: the number of local steps that cost twice the samples."""
        return CALM * (1 + self.noise)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """H, whether meetings hide behind steps, and what that should cost against steps that need no meeting."""

    interval: int
    overlaps: bool
    cost: float

    def __str__(self) -> str:
        return f"{'background' if self.overlaps else 'local'}:{self.interval}"


class Auto:
    """Chooses H, and whether to overlap, to minimise the predicted time to the target.

    With t the seconds of a step, s those of a meeting, and B the noise scale in units of the batch of all ranks: one
    step with H times the batch would need 1 + H/B times the samples. H local steps follow the path instead of leaping,
    and lose far less: 1 + H/C with C = 20 (1 + B), where 20 is what runs showed (docs/log.md). So the time to a given
    quality goes as

        local:       (t + s/H) (1 + H/C), least at H = sqrt(s C / t)
        background:  max(t, s/H) (1 + 2H/C), since what comes is H steps old; H is twice s/t, so that it has come

    B is found from the replicas themselves: of the changes d_p that ranks made since the last meeting, mean |d_p|^2 is
    signal and noise, and |mean d_p|^2 signal and a P-th of the noise. The first steps meet each time; the choice is
    looked at again after every epoch, since noise grows as training goes on: by the meetings of the epoch, or by the
    one at its end where they were in the background. What was seen, and why which choice was made, stands in the
    record. It depends on a clock, so runs don't repeat bit for bit; the choice does, if it is then written as
    `local:H`.

    References: McCandlish et al., An empirical model of large-batch training, 2018, for B and 1 + H/B; the choice of H
    was left open in DeepEx.
    """

    shares_gradients = False
    repeats = False
    staleness: int | None = None

    def __init__(self, wire: Wire | None = None) -> None:
        self.wire = wire or Plain()
        self.lockstep: Fabric
        self.notes: dict[str, Any] = {"choices": []}
        self.noise = NoiseMeter()
        self._step_seconds: list[float] = []
        self._meeting_seconds: list[float] = []
        self._squares: list[tuple[float, float, int]] = []  # of own and of mean changes, after how many steps
        self._noise: float | None = None  # as last seen
        self._alone = 0  # steps since the last meeting was, or was begun

    @classmethod
    def parse(cls, written: Written, wire: Wire) -> Self:
        written.takes()
        if wire.name:
            raise written.wrong("auto chooses with numbers as they are", "Write --sync auto, or local:8+bf16.")
        return cls(wire)

    def trainers(self, num_ranks: int) -> int:
        return num_ranks

    def prepare(self, setting: Setting) -> None:
        self.setting = replace(setting, measures_noise=False)  # what is at work need not look: this one does
        self.replica, self.lockstep = setting.replica, setting.fabric
        self.noise.begin(self.lockstep.world.size, setting.batch, setting.momentum)
        self._at_work: Local | Background = Local(1)
        self._at_work.prepare(self.setting)
        self._chosen = torch.tensor([1.0, 0.0, 0.0])  # H, whether it overlaps, whether it was chosen by measuring
        self._anchor = self.replica.weights.clone()
        self._returned = perf_counter()

    def mix_gradients(self, step: int) -> bool:
        self._go_on()
        return self._at_work.mix_gradients(step)

    def mix_weights(self, step: int) -> bool:
        if self.lockstep.world.size == 1:
            return False
        called = perf_counter()
        if self._returned < inf:
            self._step_seconds.append(called - self._returned)
        self._alone += 1
        meets = (step + 1) % self.interval == 0
        if meets and isinstance(self._at_work, Local):
            changed = self._watch(lambda: self._at_work.mix_weights(step))
            if not self._chosen[2] and len(self._meeting_seconds) == PROBED_MEETINGS:
                self._choose(f"step {step + 1}")
        else:
            changed = self._at_work.mix_weights(step)
        if meets:
            self._alone = 0
        self._returned = perf_counter()
        return changed

    def drain(self) -> None:
        if self.lockstep.world.size == 1:
            return
        if isinstance(self._at_work, Background):
            if (mean := self._at_work.settle()) is not None:
                self._anchor.copy_(mean)
            self._watch(self._at_work.drain)
        else:
            self._at_work.drain()
            self._anchor.copy_(self.replica.weights)
        self._alone = 0
        if self._chosen[2] and self._meeting_seconds and self._step_seconds and (self._squares or self._noise):
            self._choose("the end of an epoch")
        self._returned = inf  # evaluation is no part of a step

    def state(self) -> dict[str, Tensor]:
        return {"chosen": self._chosen, "anchor": self._anchor}

    @property
    def interval(self) -> int:
        return int(self._chosen[0])

    def _watch(self, meet: Callable[[], V]) -> V:
        """Meet, and note how long it took and how far replicas had gone since the last time, each and together."""
        own, begun = self._distance(), perf_counter()
        met = meet()
        self._meeting_seconds.append(perf_counter() - begun)
        if self._alone:
            self._squares.append((own, self._distance(), self._alone))
            self.noise.add_change(*self._squares[-1])
        self._anchor.copy_(self.replica.weights)
        return met

    def _distance(self) -> float:
        """The square of how far the weights are from those of the last meeting."""
        return float(torch.dist(self.replica.weights, self._anchor)) ** 2

    def _choose(self, when: str) -> None:
        """Look at what all ranks have seen, and change what is at work if that pays."""
        measured = self._look()
        now = predict(self.interval, overlaps=bool(self._chosen[1]), measured=measured)
        best = choose(measured, self.setting.steps_per_epoch, can_overlap=self.lockstep.overlaps)
        changes = not self._chosen[2] or now.cost > WORTHWHILE * best.cost
        used = best if changes else now
        self.notes["choices"].append(
            {
                "when": when,
                "sync": str(used),
                "step_seconds": measured.step_seconds,
                "meeting_seconds": measured.meeting_seconds,
                "noise": measured.noise,
                "why": explain(used, best, measured),
            }
        )
        self._chosen.copy_(torch.tensor([used.interval, used.overlaps, 1.0]))
        self._step_seconds, self._meeting_seconds, self._squares = [], [], []

    def _look(self) -> Measured:
        mine = (median(self._step_seconds), median(self._meeting_seconds), self._squares)
        found = self.lockstep.gather(mine)
        if self._squares:
            self._noise = find_noise([squares for _, _, squares in found])
        assert self._noise is not None, "the first choice has seen meetings"
        return Measured(
            step_seconds=fmean(step for step, _, _ in found),
            meeting_seconds=min(meeting for _, meeting, _ in found),
            noise=self._noise,
        )

    def _go_on(self) -> None:
        """Put what was chosen, here or in a checkpoint, to work."""
        overlaps = isinstance(self._at_work, Background)
        if (self.interval, bool(self._chosen[1])) == (self._at_work.interval, overlaps):
            return
        self._at_work.drain()
        self._at_work = Background(self.interval) if self._chosen[1] else Local(self.interval)
        self._at_work.prepare(self.setting)
        self._anchor.copy_(self.replica.weights)
        self._returned = perf_counter()


def find_noise(ranks: Sequence[Sequence[tuple[float, float, int]]]) -> float:
    """B, from what each rank saw at each meeting: the squares of its own and of the mean change, and their steps.

    >>> find_noise([[(3.0, 2.0, 1)], [(5.0, 2.0, 1)]])  # own changes are nothing but noise
    10000.0
    >>> find_noise([[(3.0, 3.0, 2)], [(3.0, 3.0, 2)]])  # and here all the same
    0.01
    """
    size = len(ranks)
    noises = [
        (fmean(own for own, _, _ in meeting), meeting[0][1], meeting[0][2]) for meeting in zip(*ranks, strict=True)
    ]
    own, mean = (sum(each[index] / each[2] for each in noises) for index in (0, 1))
    signal = (size * mean - own) / (size - 1)
    noise = (own - signal) / max(signal, 1e-30) / size * fmean(steps for _, _, steps in noises)
    return min(max(noise, LEAST_NOISE), MOST_NOISE) if signal > 0 else MOST_NOISE


def choose(measured: Measured, steps_per_epoch: int, *, can_overlap: bool) -> Choice:
    """The cheapest choice by the model.

    >>> str(choose(Measured(step_seconds=0.1, meeting_seconds=0.4, noise=3.0), 100, can_overlap=False))
    'local:18'
    """
    ratio = measured.meeting_seconds / measured.step_seconds
    wanted = min(max(1, round(sqrt(ratio * measured.critical))), steps_per_epoch)
    choices = [predict(wanted, overlaps=False, measured=measured)]
    if can_overlap and 2 * ratio <= steps_per_epoch:
        choices.append(predict(max(1, ceil(2 * ratio)), overlaps=True, measured=measured))
    return min(choices, key=lambda choice: choice.cost)


def predict(interval: int, *, overlaps: bool, measured: Measured) -> Choice:
    """What a choice should cost: time to the target, against one without meetings and without noise."""
    share = measured.meeting_seconds / measured.step_seconds / interval
    lag = interval / measured.critical
    cost = max(1.0, share) * (1 + 2 * lag) if overlaps else (1 + share) * (1 + lag)
    return Choice(interval=interval, overlaps=overlaps, cost=cost)


def explain(used: Choice, best: Choice, measured: Measured) -> str:
    """Why, in a sentence."""
    kept = f"; {best} would be better by less than a tenth" if best.cost < used.cost else ""
    return (
        f"{used}: a step takes {1e3 * measured.step_seconds:.3g} ms and a meeting {1e3 * measured.meeting_seconds:.3g} "
        f"ms, and gradients have as much noise as signal at {measured.noise:.3g} times the batch{kept}"
    )
