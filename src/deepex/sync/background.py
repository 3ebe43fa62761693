"""`background:H`: as local SGD, with the mean computed while training goes on."""

from typing import Any, Self

import torch
from torch import Tensor

from deepex.fabric import Fabric, Work
from deepex.sync.allreduce import mean_statistics
from deepex.sync.compressors.compressor import Compressor, Uncompressed
from deepex.sync.noise import NoiseMeter
from deepex.sync.spec import SyncSpec
from deepex.sync.sync import SyncContext, SyncTraits


class Background:
    """Local SGD whose syncs nobody waits for.

    After every H steps a rank writes down its weights w0 and sends them off; H steps later, when the next are written
    down, the mean has long arrived, and what the others have learned is added to what this rank has learned since:

        w_p <- w_p + (1/P) sum_q w0_q - w0_p

    The delay is a fixed number of steps, not the moment of arrival, so the same recipe gives the same bits. A lossy
    compressor sends w0_p - a, with a the mean of the time before. The optimiser's moments stay with their rank.

    Arguments:
        interval: H.
        compressor: what travels.

    Reference: DeepEx's background synchronisation; Shen et al., Faster distributed deep net training, 2019 (CoCoD-SGD).
    """

    def __init__(self, interval: int, compressor: Compressor | None = None) -> None:
        self.interval, self.compressor = interval, compressor or Uncompressed()
        self.traits = SyncTraits(
            staleness=None if self.compressor.delays else 2 * interval - 1,
            repeats=True,
            interval=interval,
            hides_messages=True,
        )
        self.lockstep: Fabric
        self.notes: dict[str, Any] = {}
        self.noise = NoiseMeter()
        self._work: Work | None = None

    @classmethod
    def parse(cls, spec: SyncSpec, compressor: Compressor) -> Self:
        spec.takes(argument=True)
        return cls(spec.steps(), compressor)

    def num_training_ranks(self, num_ranks: int) -> int:
        return num_ranks

    def prepare(self, context: SyncContext) -> None:
        self.replica, self.lockstep = context.replica, context.fabric
        self.lockstep.broadcast_(self.replica.block, source=0).wait()
        self._flags = torch.zeros(2)  # whether a mean is under way, and whether replicas may differ
        self._kept = {"flags": self._flags}
        if self.lockstep.world.size == 1:
            return
        self.compressor.prepare(self.replica, self.lockstep)
        numel = self.replica.block.numel()
        self._own, self._mean = torch.zeros_like(self.replica.block), self.lockstep.empty(numel)
        self._kept |= {"own": self._own, "mean": self._mean}
        if not self.compressor.exact:
            self._kept["anchor"] = self.replica.block.clone()

    def mix_gradients(self, step: int) -> bool:
        return True

    def mix_weights(self, step: int) -> bool:
        self._flags[1] = 1
        if (step + 1) % self.interval or self.lockstep.world.size == 1:
            return False
        changed = self._arrive()
        self._send()
        return changed

    def wait_pending(self) -> Tensor | None:
        """Wait for what is under way, and return it: replicas then differ from it by their own steps since it left."""
        return self._mean[: len(self.replica.weights)] if self._arrive() else None

    def drain(self) -> None:
        """Wait for what is under way, and sync once more, now without training on."""
        if self.lockstep.world.size == 1 or not self._flags[1]:
            return
        self._arrive()
        self._send()
        self._arrive()
        self.replica.block.copy_(self._mean)
        self._flags[1] = 0

    def state(self) -> dict[str, Tensor]:
        if self._work is not None:
            self._finish(self._work)
        return {**self._kept, **self.compressor.state()}

    def _send(self) -> None:
        self._own.copy_(self.replica.block)
        self._mean.copy_(self._own)
        self._flags[0] = 1
        if self.compressor.exact:
            self._work = self.lockstep.mean_(self._mean)
            return
        weights = len(self.replica.weights)
        self._mean[:weights].sub_(self._kept["anchor"][:weights])
        self._work = self.compressor.mean_(self._mean[:weights], 0)

    def _finish(self, work: Work) -> None:
        """The mean of all replicas, once the others' have come."""
        work.wait()
        self._work = None
        if not self.compressor.exact:
            weights = len(self.replica.weights)
            self._mean[:weights].add_(self._kept["anchor"][:weights])
            mean_statistics(self._mean[weights:], self.lockstep)
            self._kept["anchor"].copy_(self._mean)

    def _arrive(self) -> bool:
        """Add what the others have learned, if it was sent for."""
        if not self._flags[0]:
            return False
        if self._work is not None:
            self._finish(self._work)
        self._flags[0] = 0
        self.replica.block.add_(self._mean).sub_(self._own)
        return True
