"""`lagged`: the mean gradient of the step before, so that the all-reduce hides behind the next backward."""

from typing import Any, Self

import torch
from torch import Tensor

from deepex.fabric import Fabric, Work
from deepex.sync.allreduce import mean_statistics
from deepex.sync.compressors.compressor import Compressor, Uncompressed
from deepex.sync.noise import NoiseMeter, square
from deepex.sync.spec import SyncSpec
from deepex.sync.sync import SyncContext, SyncTraits


class Lagged:
    """Synchronous training with gradients that are one step old.

    In step t the weights change by g_{t-1} = (1/P) sum_p g_{p,t-1}, while g_t is on its way: w_{t+1} <- w_t - eta
    g_{t-1}. The first step changes nothing. Replicas stay equal bit for bit. `drain` keeps the last gradient for the
    first step of the next epoch; only the very last of a run is dropped.

    Arguments:
        compressor: what travels.

    Reference: Kurth et al., Exascale deep learning for climate analytics, SC 2018.
    """

    def __init__(self, compressor: Compressor | None = None) -> None:
        self.compressor = compressor or Uncompressed()
        self.traits = SyncTraits(
            staleness=None if self.compressor.delays else 1,
            shares_gradients=True,
            repeats=True,
            interval=1,
            hides_messages=True,
        )
        self.lockstep: Fabric
        self.notes: dict[str, Any] = {}
        self.noise = NoiseMeter()
        self._work: Work | None = None
        self._square: Tensor | None = None  # of this rank's gradient under way, if it is looked at

    @classmethod
    def parse(cls, spec: SyncSpec, compressor: Compressor) -> Self:
        spec.takes()
        return cls(compressor)

    def num_training_ranks(self, num_ranks: int) -> int:
        return num_ranks

    def prepare(self, context: SyncContext) -> None:
        self.replica, self.lockstep = context.replica, context.fabric
        self.lockstep.broadcast_(self.replica.block, source=0).wait()
        self.compressor.prepare(self.replica, self.lockstep)
        if self.lockstep.world.size > 1:
            numel = self.replica.gradients.numel()
            self._under_way, self._spare = self.lockstep.empty(numel), self.lockstep.empty(numel)
            self._pending = torch.zeros(1)
            if context.measures_noise and not self.compressor.delays:
                self.noise.begin(self.lockstep.world.size, context.batch)

    def mix_gradients(self, step: int) -> bool:
        if self.lockstep.world.size == 1:
            return True
        self._spare.copy_(self.replica.gradients)
        self._finish()
        if self._square is not None:
            self.noise.add_gradient(self._square, square(self._under_way))
        self._square = square(self._spare) if self.noise.is_due(step) else None
        has_gradient = bool(self._pending)
        if has_gradient:
            self.replica.gradients.copy_(self._under_way)
        self._under_way, self._spare = self._spare, self._under_way
        self._work = self.compressor.mean_(self._under_way, 0)
        self._pending.fill_(1)
        return has_gradient

    def mix_weights(self, step: int) -> bool:
        return False

    def drain(self) -> None:
        mean_statistics(self.replica.statistics, self.lockstep)

    def state(self) -> dict[str, Tensor]:
        if self.lockstep.world.size == 1:
            return {}
        self._finish()
        return {"pending": self._pending, "gradient": self._under_way, **self.compressor.state()}

    def _finish(self) -> None:
        if self._work is not None:
            self._work.wait()
            self._work = None
