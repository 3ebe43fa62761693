"""The task of a run whose loop the user keeps, for its recipe: a name, and what it is judged by."""

from dataclasses import dataclass
from typing import NoReturn

from torch import nn

from deepex.errors import UsageError
from deepex.sample import Batch
from deepex.train.task import Loss, Tally, Target


@dataclass(frozen=True, kw_only=True)
class LoopTask:
    """Data, model and loss stand in the user's script, and are asked for in vain here."""

    name: str = "loop"
    metric: str = "training_loss"

    @property
    def target(self) -> Target:
        return Target(metric=self.metric)

    def data(self) -> NoReturn:
        raise self._elsewhere("reads its data")

    def model(self) -> nn.Module:
        raise self._elsewhere("makes its model")

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        raise self._elsewhere("computes its loss")

    def evaluate(self, model: nn.Module, batch: Batch) -> Tally:
        raise self._elsewhere("evaluates its model")

    def _elsewhere(self, does: str) -> UsageError:
        return UsageError(f"task '{self.name}' is a loop in a script, which {does} itself. Run that script.")
