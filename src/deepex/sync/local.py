"""`local:H` and `local:epoch`: ranks train alone and average their weights now and then, in one call."""

from dataclasses import replace
from typing import Any, Literal, Self, cast

import torch
from torch import Tensor

from deepex.fabric import Fabric
from deepex.sync.allreduce import AllReduce, mean_statistics
from deepex.sync.compressors.compressor import Plain, Wire
from deepex.sync.noise import ChangeWatch, NoiseMeter
from deepex.sync.spec import Written
from deepex.sync.sync import Setting

Outer = Literal["average", "momentum", "nesterov"]
Moments = Literal["keep", "average", "reset"]


class Local:
    """Local SGD: H steps alone, then the replicas meet.

    w_p makes H steps by itself; then, with a the weights after the last meeting and d = a - (1/P) sum_p w_p,

        average:   w <- a - d, which is the mean of all replicas
        momentum:  v <- m v + d;  w <- a - r v
        nesterov:  v <- m v + d;  w <- a - r (d + m v)

    Weights and batch-norm statistics stand in one block, so a meeting is ONE all-reduce; statistics are averaged. The
    optimiser's moments stay with their rank (`keep`: they describe the gradients that it sees), are averaged too, at
    the price of as many bytes again for each, or begin anew at zero (`reset`). A lossy wire carries changes w_p - a,
    never weights.

    Arguments:
        interval: H, or None for once an epoch.
        outer, rate, momentum: how the mean change is applied; r and m above.
        moments: what happens to the optimiser's moments.
        after: epochs of synchronous training before the first local one (post-local SGD).
        wire: what travels.

    References: Stich, Local SGD converges fast and communicates little, ICLR 2019; Douillard et al., DiLoCo, 2023; Lin
    et al., Don't use large mini-batches, use local SGD, ICLR 2020 (post-local).
    """

    shares_gradients = False
    repeats = True

    def __init__(
        self,
        interval: int | None,
        *,
        outer: Outer = "average",
        rate: float = 0.7,
        momentum: float = 0.9,
        moments: Moments = "keep",
        after: int = 0,
        wire: Wire | None = None,
    ) -> None:
        self.interval, self.outer, self.rate, self.momentum = interval, outer, rate, momentum
        self.moments, self.after, self.wire = moments, after, wire or Plain()
        self.staleness: int | None = None if interval is None or self.wire.delays else interval - 1
        self.lockstep: Fabric
        self.notes: dict[str, Any] = {}
        self.noise = NoiseMeter()
        self._first = AllReduce() if after else None
        self._kept: dict[str, Tensor] = {}

    @classmethod
    def parse(cls, written: Written, wire: Wire) -> Self:
        written.takes("outer", "rate", "mu", "momentum", "after", argument=True)
        if written.argument != "epoch" and (not written.argument.isdecimal() or int(written.argument) < 1):
            raise written.wrong(
                "H must be a whole number of steps from 1, or 'epoch'", "Write --sync local:8 or --sync local:epoch."
            )
        return cls(
            None if written.argument == "epoch" else int(written.argument),
            outer=cast(Outer, written.choice("outer", ("average", "momentum", "nesterov"))),
            rate=written.number("rate", 0.7, below=10.0),
            momentum=written.number("mu", 0.9, below=1.0),
            moments=cast(Moments, written.choice("momentum", ("keep", "average", "reset"))),
            after=written.whole("after", 0, least=0),
            wire=wire,
        )

    def trainers(self, num_ranks: int) -> int:
        return num_ranks

    def prepare(self, setting: Setting) -> None:
        self.setting, self.replica, self.lockstep = setting, setting.replica, setting.fabric
        self.lockstep.broadcast_(self.replica.block, source=0).wait()
        if self.interval is None and not self.wire.delays:
            self.staleness = setting.steps_per_epoch - 1
        self._usual_steps = min(self.interval or setting.steps_per_epoch, setting.steps_per_epoch)
        self._alone = torch.zeros(1)  # whether replicas may differ
        self._kept = {"alone": self._alone}
        self._watch = ChangeWatch(self.noise, self.replica.weights)
        keeps = self.moments == "keep" or not setting.momentum  # else its formula for momentum does not hold
        looks = setting.measures_noise and keeps and not self.wire.delays
        if self._first is not None:
            self._first.noise = self.noise
            # Not early: by the first local step's backward nobody would wait for what left during it.
            self._first.prepare(replace(setting, measures_noise=looks, sends_early=False))
            self.notes = self._first.notes
        if self.lockstep.world.size == 1:
            return
        self.wire.prepare(self.replica, self.lockstep)
        if looks:
            self.noise.begin(self.lockstep.world.size, setting.batch, setting.momentum)
        weights = self.replica.weights
        if self.outer != "average" or not self.wire.exact:
            self._kept["anchor"] = weights.clone()
            self._change = torch.empty_like(weights)
        if self.outer != "average":
            self._kept["velocity"] = torch.zeros_like(weights)

    def mix_gradients(self, step: int) -> bool:
        if self._is_synchronous(step):
            assert self._first is not None
            return self._first.mix_gradients(step)
        if self.noise.is_change_due(step, self._usual_steps) and not self._alone:
            self._watch.begin(self._kept.get("anchor"))
        return True

    def mix_weights(self, step: int) -> bool:
        if self._is_synchronous(step):
            if "anchor" in self._kept:
                self._kept["anchor"].copy_(self.replica.weights)
            return False
        self._alone.fill_(1)
        self._watch.count_step()
        if self.interval is not None and (step + 1) % self.interval == 0:
            self.meet()
            return True
        return False

    def drain(self) -> None:
        if self._alone:
            self.meet()
        elif self._first is not None:
            mean_statistics(self.replica.statistics, self.lockstep)

    def state(self) -> dict[str, Tensor]:
        return {**self._kept, **self.wire.state()}

    def meet(self) -> None:
        """Make all replicas one."""
        self._alone.fill_(0)
        if self.lockstep.world.size == 1:
            return
        self._watch.see_own()
        if "anchor" not in self._kept:
            self.lockstep.mean_(self.replica.block).wait()
            self._watch.see_mean()
        else:
            change = self._mean_change()
            self._watch.see_mean(change)
            self._apply(change)
        if self.moments != "keep":
            self._mix_moments()

    def _mean_change(self) -> Tensor:
        """d: how far the mean replica has come from the last meeting, downhill."""
        weights, anchor = self.replica.weights, self._kept["anchor"]
        if self.wire.exact:
            self.lockstep.mean_(self.replica.block).wait()
            return torch.sub(anchor, weights, out=self._change)
        torch.sub(anchor, weights, out=self._change)
        work = self.wire.mean_(self._change, 0)
        mean_statistics(self.replica.statistics, self.lockstep)
        work.wait()
        return self._change

    def _apply(self, change: Tensor) -> None:
        weights, anchor = self.replica.weights, self._kept["anchor"]
        if self.outer == "average":
            torch.sub(anchor, change, out=weights)
        else:
            velocity = self._kept["velocity"].mul_(self.momentum).add_(change)
            weights.copy_(anchor)
            if self.outer == "nesterov":
                weights.add_(change, alpha=-self.rate).add_(velocity, alpha=-self.rate * self.momentum)
            else:
                weights.add_(velocity, alpha=-self.rate)
        anchor.copy_(weights)

    def _mix_moments(self) -> None:
        for moment in self.setting.moments.values():
            if moment.shape != self.replica.weights.shape:
                continue
            if self.moments == "average":
                self.lockstep.mean_(moment).wait()
            else:
                moment.zero_()

    def _is_synchronous(self, step: int) -> bool:
        return self._first is not None and step < self.after * self.setting.steps_per_epoch
