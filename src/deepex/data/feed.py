"""Feed: the batches of a plan, read from a source into buffers that are allocated once. It knows no model."""

import numpy as np
import torch
from numpy.typing import NDArray

from deepex.data.plan import Plan
from deepex.data.source import Source, allocate
from deepex.sample import Batch


class Feed:
    """Batches by (epoch, step), so that a run can start in the middle of an epoch.

    Two buffers alternate: the batch that was handed out stays intact while the next one is read.
    """

    def __init__(self, source: Source, plan: Plan, device: torch.device) -> None:
        self.source, self.plan, self.device = source, plan, device
        self._buffers = [allocate(source.spec, plan.batch) for _ in range(2)]
        self._epoch = -1
        self._indices: NDArray[np.int64] = np.empty((0, plan.batch), dtype=np.int64)

    def batch(self, epoch: int, step: int) -> Batch:
        """The batch of one step; valid until two steps later."""
        if epoch != self._epoch:
            self._epoch, self._indices = epoch, self.plan.indices(epoch)
        buffer = self._buffers[step % 2]
        self.source.read(self._indices[step], buffer)
        if self.device.type == "cpu":
            return dict(buffer)
        return {name: tensor.to(self.device) for name, tensor in buffer.items()}
