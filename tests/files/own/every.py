"""A strategy of a user's own: all replicas become their mean after every H steps."""

from typing import Any, Self

import torch
from torch import Tensor

from deepex.fabric import Fabric
from deepex.sync import SyncContext, SyncTraits
from deepex.sync.compressors.compressor import Compressor, Uncompressed
from deepex.sync.noise import NoiseMeter
from deepex.sync.spec import SyncSpec


class Every:
    """Local SGD as one would write it oneself; what a compressor sends is the change since the last mean."""

    def __init__(self, interval: int = 2, compressor: Compressor | None = None) -> None:
        self.interval, self.compressor = interval, compressor or Uncompressed()
        self.traits = SyncTraits(staleness=interval - 1, repeats=True, interval=interval)
        self.lockstep: Fabric
        self.notes: dict[str, Any] = {"interval": interval}
        self.noise = NoiseMeter()

    @classmethod
    def parse(cls, spec: SyncSpec, compressor: Compressor) -> Self:
        spec.takes(argument=True)
        return cls(spec.steps() if spec.argument else 2, compressor)

    def num_training_ranks(self, num_ranks: int) -> int:
        return num_ranks

    def prepare(self, context: SyncContext) -> None:
        self.replica, self.lockstep = context.replica, context.fabric
        self.lockstep.broadcast_(self.replica.block, source=0).wait()
        self.compressor.prepare(self.replica, self.lockstep)
        self.kept = {"mean": self.replica.block.clone(), "steps": torch.zeros(1)}

    def mix_gradients(self, step: int) -> bool:
        return True

    def mix_weights(self, step: int) -> bool:
        self.kept["steps"] += 1
        if (step + 1) % self.interval:
            return False
        self.average()
        return True

    def average(self) -> None:
        self.kept["steps"].zero_()
        if self.compressor.exact:
            self.lockstep.mean_(self.replica.block).wait()
            return
        change = self.replica.block - self.kept["mean"]
        self.compressor.mean_(change[: len(self.replica.weights)], 0).wait()
        self.lockstep.mean_(change[len(self.replica.weights) :].contiguous()).wait()
        self.replica.block.copy_(self.kept["mean"].add_(change))

    def drain(self) -> None:
        if self.kept["steps"]:
            self.average()

    def state(self) -> dict[str, Tensor]:
        return {**self.kept, **self.compressor.state()}


class Half:
    """Not a strategy yet."""

    traits = SyncTraits()

    def prepare(self, context: SyncContext) -> None:
        pass


fours = Every(4)
