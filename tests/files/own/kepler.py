"""A task of a user's own: periods of planets from their distances."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import deepex as dx
from deepex.data import ArraySource, Splits, Subset
from deepex.sample import Batch

calls = 0
INTERRUPT = Path(__file__).with_name("interrupt")  # where it stands, a run is stopped in its first epoch, once


@dataclass(frozen=True, kw_only=True)
class Kepler:
    """The task; `degree` is that of the polynomial."""

    name: str = "kepler"
    degree: int = 2
    noise: float = 0.01

    @property
    def target(self) -> dx.Target:
        return dx.Target(metric="error", threshold=0.0)

    def data(self) -> Splits:
        noise = torch.Generator().manual_seed(0)
        distance = torch.rand(600, 1, generator=noise)
        period = distance**1.5 + self.noise * torch.randn(600, 1, generator=noise)
        source, order = ArraySource({"distance": distance, "period": period}), np.arange(600)
        train, validation = Subset(source, order[:480]), Subset(source, order[480:])
        return Splits(train=train, validation=validation, content_sha256="kepler")

    def model(self) -> nn.Module:
        return nn.Linear(self.degree, 1)

    def loss(self, model: nn.Module, batch: Batch) -> dx.Loss:
        interrupt_once(model)
        return dx.Loss(total=nn.functional.mse_loss(model(self._powers(batch)), batch["period"]))

    def evaluate(self, model: nn.Module, batch: Batch) -> dx.Tally:
        errors = (model(self._powers(batch)) - batch["period"]).abs()
        return dx.Tally(total=float(errors.sum()), count=len(errors))

    def _powers(self, batch: Batch) -> Tensor:
        return torch.cat([batch["distance"] ** power for power in range(1, self.degree + 1)], dim=1)


class Endless(Kepler):
    """Trains for all its epochs."""

    @property
    def target(self) -> dx.Target:
        return dx.Target(metric="error")


def interrupt_once(model: nn.Module) -> None:
    """A Ctrl-C of the first rank, in the sixth step behind the trials on the first batch."""
    global calls
    calls += model.training
    if calls == 16 + 6 and os.environ.get("RANK", "0") == "0" and INTERRUPT.exists():
        INTERRUPT.unlink()
        os.kill(os.getpid(), signal.SIGINT)


not_a_task = 3
