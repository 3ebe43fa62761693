"""`background:H`: as local SGD, with the mean computed while training goes on."""

from typing import Any, Self

import torch
from torch import Tensor

from deepex.fabric import Fabric, Work
from deepex.sync.allreduce import mean_statistics
from deepex.sync.compressors.compressor import Plain, Wire
from deepex.sync.noise import NoiseMeter
from deepex.sync.spec import Written
from deepex.sync.sync import Setting


class Background:
    """Local SGD whose meetings nobody waits for.

    After every H steps a rank writes down its weights w0 and sends them off; H steps later, when the next are written
    down, the mean has long arrived, and what the others have learned is added to what this rank has learned since:

        w_p <- w_p + (1/P) sum_q w0_q - w0_p

    The delay is a fixed number of steps, not the moment of arrival, so the same recipe gives the same bits. A lossy
    wire carries w0_p - a, with a the mean of the time before. The optimiser's moments stay with their rank.

    Arguments:
        interval: H.
        wire: what travels.

    Reference: DeepEx's background synchronisation; Shen et al., Faster distributed deep net training, 2019 (CoCoD-SGD).
    """

    shares_gradients = False
    repeats = True

    def __init__(self, interval: int, wire: Wire | None = None) -> None:
        self.interval, self.wire = interval, wire or Plain()
        self.staleness: int | None = None if self.wire.delays else 2 * interval - 1
        self.lockstep: Fabric
        self.notes: dict[str, Any] = {}
        self.noise = NoiseMeter()
        self._work: Work | None = None

    @classmethod
    def parse(cls, written: Written, wire: Wire) -> Self:
        written.takes(argument=True)
        return cls(written.steps(), wire)

    def trainers(self, num_ranks: int) -> int:
        return num_ranks

    def prepare(self, setting: Setting) -> None:
        self.replica, self.lockstep = setting.replica, setting.fabric
        self.lockstep.broadcast_(self.replica.block, source=0).wait()
        self._flags = torch.zeros(2)  # whether a mean is under way, and whether replicas may differ
        self._kept = {"flags": self._flags}
        if self.lockstep.world.size == 1:
            return
        self.wire.prepare(self.replica, self.lockstep)
        numel = self.replica.block.numel()
        self._own, self._mean = torch.zeros_like(self.replica.block), self.lockstep.empty(numel)
        self._kept |= {"own": self._own, "mean": self._mean}
        if not self.wire.exact:
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

    def settle(self) -> Tensor | None:
        """Wait for what is under way, and return it: replicas then differ from it by their own steps since it left."""
        return self._mean[: len(self.replica.weights)] if self._arrive() else None

    def drain(self) -> None:
        """Wait for what is under way, and meet once more, now without training on."""
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
        return {**self._kept, **self.wire.state()}

    def _send(self) -> None:
        self._own.copy_(self.replica.block)
        self._mean.copy_(self._own)
        self._flags[0] = 1
        if self.wire.exact:
            self._work = self.lockstep.mean_(self._mean)
            return
        weights = len(self.replica.weights)
        self._mean[:weights].sub_(self._kept["anchor"][:weights])
        self._work = self.wire.mean_(self._mean[:weights], 0)

    def _finish(self, work: Work) -> None:
        """The mean of all replicas, once the others' have come."""
        work.wait()
        self._work = None
        if not self.wire.exact:
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
