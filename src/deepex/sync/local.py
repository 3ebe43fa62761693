"""`local:H` and `local:epoch`: ranks train alone and average their weights now and then, in one call."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Self, cast

import torch
from torch import Tensor

from deepex.fabric import Fabric
from deepex.sync.allreduce import AllReduce, mean_statistics, parse_bucket
from deepex.sync.compressors.compressor import Compressor, Uncompressed
from deepex.sync.noise import ChangeWatch, NoiseMeter
from deepex.sync.spec import SyncSpec
from deepex.sync.sync import SyncContext, SyncTraits

Outer = Literal["average", "momentum", "nesterov"]
Moments = Literal["keep", "average", "reset"]


class Local:
    """Local SGD: H steps alone, then the replicas meet.

    w_p makes H steps by itself; then, with a the weights after the last sync and d = a - (1/P) sum_p w_p,

        average:   w <- a - d, which is the mean of all replicas
        momentum:  v <- m v + d;  w <- a - r v
        nesterov:  v <- m v + d;  w <- a - r (d + m v)

    Weights and batch-norm statistics stand in one block, so a sync is ONE all-reduce; statistics are averaged. The
    optimiser's moments stay with their rank (`keep`: they describe the gradients that it sees), are averaged too, at
    the price of as many bytes again for each, or begin anew at zero (`reset`). A lossy compressor sends changes
    w_p - a, never weights.

    Arguments:
        interval: H, or None for once an epoch.
        outer, rate, momentum: how the mean change is applied; r and m above.
        moments: what happens to the optimiser's moments.
        after: epochs of synchronous training before the first local one (post-local SGD).
        bucket_bytes: the size of a slice of the gradients in those epochs, as in `allreduce`; None to find it.
        compressor: what travels in local epochs.
        spec: as it was written, for the record.

    References: Stich, Local SGD converges fast and communicates little, ICLR 2019; Douillard et al., DiLoCo, 2023; Lin
    et al., Don't use large mini-batches, use local SGD, ICLR 2020 (post-local).
    """

    def __init__(
        self,
        interval: int | None,
        *,
        outer: Outer = "average",
        rate: float = 0.7,
        momentum: float = 0.9,
        moments: Moments = "keep",
        after: int = 0,
        bucket_bytes: int | None = None,
        compressor: Compressor | None = None,
        spec: SyncSpec | None = None,
    ) -> None:
        self.interval, self.outer, self.rate, self.momentum = interval, outer, rate, momentum
        self.moments, self.after, self.compressor = moments, after, compressor or Uncompressed()
        self.spec = spec
        self.traits = SyncTraits(
            staleness=None if interval is None or self.compressor.delays else interval - 1,
            repeats=True,
            interval=interval,
            once_an_epoch=interval is None,
        )
        self.lockstep: Fabric
        self.notes: dict[str, Any] = {}
        self.noise = NoiseMeter()
        self._first = AllReduce(bucket_bytes=bucket_bytes) if after else None
        self._kept: dict[str, Tensor] = {}

    @classmethod
    def parse(cls, spec: SyncSpec, compressor: Compressor) -> Self:
        spec.takes("outer", "rate", "mu", "momentum", "after", "bucket", argument=True)
        if spec.argument != "epoch" and (not spec.argument.isdecimal() or int(spec.argument) < 1):
            raise spec.wrong(
                "H must be a whole number of steps from 1, or 'epoch'", "Write --sync local:8 or --sync local:epoch."
            )
        after = spec.whole("after", 0, least=0)
        if "bucket" in spec.options and not after:
            raise spec.wrong(
                "bucket is for the synchronous epochs before the first local one", "Set after=1 too, or leave it out."
            )
        return cls(
            None if spec.argument == "epoch" else int(spec.argument),
            outer=cast(Outer, spec.choice("outer", ("average", "momentum", "nesterov"))),
            rate=spec.number("rate", 0.7, below=10.0),
            momentum=spec.number("mu", 0.9, below=1.0),
            moments=cast(Moments, spec.choice("momentum", ("keep", "average", "reset"))),
            after=after,
            bucket_bytes=parse_bucket(spec),
            compressor=compressor,
            spec=spec,
        )

    def num_training_ranks(self, num_ranks: int) -> int:
        return num_ranks

    def prepare(self, context: SyncContext) -> None:
        self.context, self.replica, self.lockstep = context, context.replica, context.fabric
        self.lockstep.broadcast_(self.replica.block, source=0).wait()
        self._usual_steps = min(self.interval or context.steps_per_epoch, context.steps_per_epoch)
        self._alone = torch.zeros(1)  # whether replicas may differ
        self._kept = {"alone": self._alone}
        self._watch = ChangeWatch(self.noise, self.replica.weights)
        keeps = self.moments == "keep" or not context.momentum  # else its formula for momentum does not hold
        looks = context.measures_noise and keeps and not self.compressor.delays
        if self._first is not None:
            self._first.noise = self.noise
            # Not early: by the first local step's backward nobody would wait for what left during it.
            self._first.prepare(replace(context, measures_noise=looks, sends_early=False))
            self.notes = self._describe_first(self._first.notes)
        if self.lockstep.world.size == 1:
            return
        self.compressor.prepare(self.replica, self.lockstep)
        if looks:
            self.noise.begin(self.lockstep.world.size, context.batch, context.momentum)
        weights = self.replica.weights
        if self.outer != "average" or not self.compressor.exact:
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
            self.average()
            return True
        return False

    def drain(self) -> None:
        if self._alone:
            self.average()
        elif self._first is not None:
            mean_statistics(self.replica.statistics, self.lockstep)

    def state(self) -> dict[str, Tensor]:
        return {**self._kept, **self.compressor.state()}

    def average(self) -> None:
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
        """d: how far the mean replica has come from the last sync, downhill."""
        weights, anchor = self.replica.weights, self._kept["anchor"]
        if self.compressor.exact:
            self.lockstep.mean_(self.replica.block).wait()
            return torch.sub(anchor, weights, out=self._change)
        torch.sub(anchor, weights, out=self._change)
        work = self.compressor.mean_(self._change, 0)
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
        for moment in self.context.moments.values():
            if moment.shape != self.replica.weights.shape:
                continue
            if self.moments == "average":
                self.lockstep.mean_(moment).wait()
            else:
                moment.zero_()

    def _describe_first(self, notes: Mapping[str, Any]) -> dict[str, Any]:
        """What the synchronous epochs found out; the size of their slices becomes an option of the whole strategy."""
        found = {key: value for key, value in notes.items() if key != "as_run"}
        if "as_run" in notes and self.spec is not None:
            found["as_run"] = self.spec.with_options(bucket=f"{notes['bucket_mib']:g}").text
        return found

    def _is_synchronous(self, step: int) -> bool:
        return self._first is not None and step < self.after * self.context.steps_per_epoch
