"""One step of one replica: forward, backward, sync, update, sync. Each stands in its phase."""

from torch import Tensor
from torch.optim import Optimizer

from deepex.record.phases import Clock
from deepex.replica import Replica
from deepex.sample import Batch
from deepex.sync import Sync
from deepex.train.task import Loss, Task


class Step:
    """What happens to a batch. The strategy decides when replicas talk; the step only offers it the places."""

    def __init__(self, task: Task, replica: Replica, optimiser: Optimizer, sync: Sync, clock: Clock) -> None:
        self.task, self.replica, self.optimiser, self.sync, self.clock = task, replica, optimiser, sync, clock

    def __call__(self, batch: Batch, number: int) -> Loss:
        """Train on one batch; `number` counts steps over the whole run."""
        with self.clock.forward:
            loss = self.task.loss(self.replica.model, batch)
        with self.clock.backward:
            self.replica.gradients.zero_()
            _backward(loss.total)
        with self.clock.sync:
            self.sync.mix_gradients(number)
        with self.clock.update:
            self.optimiser.step()
        with self.clock.sync:
            self.sync.mix_weights(number)
        return loss


def _backward(total: Tensor) -> None:
    """Gradients add up in place, in the views into the flat block."""
    total.backward()  # type: ignore[no-untyped-call]  # torch leaves backward untyped
