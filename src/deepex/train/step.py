"""One step of one replica: forward, backward, sync, update, sync. Each stands in its phase."""

import traceback
from pathlib import Path

import torch
from torch import Tensor

from deepex.errors import DataError
from deepex.fabric import Fabric
from deepex.optim import Optimiser
from deepex.record.phases import Clock
from deepex.replica import Replica
from deepex.sample import Batch, describe_batch
from deepex.sync import Sync, SyncContext
from deepex.train.compute.precision import LossScale, Precision, autocast
from deepex.train.task import Loss, Task, expect

BETWEEN = (str(Path(torch.__file__).parent), str(Path(__file__).parent / "compute" / "dispatch_cost.py"))
"""Files that stand between a model and what it did wrong: torch, and what counts its operators."""


class Step:
    """What happens to a batch. The strategy decides when replicas talk; the step only offers it the places."""

    def __init__(
        self, task: Task, replica: Replica, optimiser: Optimiser, sync: Sync, precision: Precision, clock: Clock
    ) -> None:
        self.task, self.replica, self.optimiser, self.sync, self.clock = task, replica, optimiser, sync, clock
        self.precision = precision
        self.autocast = autocast(precision, replica.block.device)
        self.loss_scale = LossScale(precision)

    def __call__(self, batch: Batch, number: int) -> Loss:
        """Train on one batch; `number` counts steps over the whole run."""
        with self.clock.forward:
            loss = self.forward(batch)
        with self.clock.backward:
            self.backward(loss)
        with self.clock.sync:
            has_gradient = self.sync.mix_gradients(number)
        with self.clock.update:
            if has_gradient and self.loss_scale.unscale(self.replica.gradients):
                self.optimiser.step()
        with self.clock.sync:
            self.sync.mix_weights(number)
        return loss

    def context(self, fabric: Fabric, steps_per_epoch: int, batch: int) -> SyncContext:
        """What the strategy works with."""
        return SyncContext(
            replica=self.replica,
            fabric=fabric,
            moments=self.optimiser.moments,
            steps_per_epoch=steps_per_epoch,
            batch=batch,
            momentum=self.optimiser.momentum,
        )

    def follow(self, number: int) -> None:
        """A step without a batch: joins the collectives, and applies the update that ranks share."""
        with self.clock.sync:
            self.replica.gradients.zero_()
            has_gradient = self.sync.mix_gradients(number)
        with self.clock.update:
            if has_gradient and self.sync.traits.shares_gradients and self.loss_scale.unscale(self.replica.gradients):
                self.optimiser.step()
        with self.clock.sync:
            self.sync.mix_weights(number)

    def forward(self, batch: Batch) -> Loss:
        try:
            with self.autocast:
                return expect(self.task.loss(self.replica.model, batch), Loss, "loss()")
        except IndexError as error:  # a class number that the model has not, in whichever batch it comes
            raise unfit(batch, error) from error

    def backward(self, loss: Loss) -> None:
        """Gradients add up in place, in the views into the flat block."""
        self.replica.gradients.zero_()
        _backward(self.loss_scale.scale(loss.total))


def unfit(batch: Batch, error: Exception) -> DataError:
    """The error for a batch that a model can't take: what was given, what was said, and where."""
    frames = traceback.extract_tb(error.__traceback__)
    where = next((frame for frame in reversed(frames) if not frame.filename.startswith(BETWEEN)), frames[-1])
    return DataError(
        f"the model can't take this batch ({describe_batch(batch)}): {type(error).__name__} in {where.filename}, line "
        f"{where.lineno}: {error}. Look at shapes, dtypes and class numbers in the data, and at what the model was "
        "built for."
    )


def _backward(total: Tensor) -> None:
    total.backward()  # type: ignore[no-untyped-call]  # torch leaves backward untyped
