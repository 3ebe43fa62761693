"""Loops for tests: small ones, as a user would write them, on a plane with a bend."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

import deepex as dx


class Net(nn.Module):
    """Batch-norm, dropout, a tied and a frozen weight, in a few numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(4, 8), nn.BatchNorm1d(8)
        self.noise, self.second = nn.Dropout(0.1), nn.Linear(8, 8)
        self.third, self.last = nn.Linear(8, 8), nn.Linear(8, 1)
        self.third.weight = self.second.weight
        self.first.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.noise(torch.relu(self.norm(self.first(x))))
        value: Tensor = self.last(torch.relu(self.third(torch.relu(self.second(hidden)))))
        return value


def make_data(count: int = 200) -> tuple[Tensor, Tensor]:
    noise = torch.Generator().manual_seed(0)
    x = torch.randn(count, 4, generator=noise)
    return x, x[:, :1] * 2 + x[:, 1:2].abs()


def train(
    sync: Any = "allreduce",
    *,
    epochs: int = 2,
    batch_size: int = 10,
    before_step: Callable[[dx.Session, int], None] = lambda run, number: None,
    **options: Any,
) -> tuple[Path, str]:
    """A loop of a few epochs; the run's directory, and a fingerprint of this rank's weights."""
    with dx.start(verbosity="quiet", page=False, **options) as run:
        model = Net()
        optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.01)
        replicated = dx.Replicated(model, optimizer, sync)
        feed = dx.feed(make_data(), batch_size=batch_size)
        number = 0
        for _ in run.epochs(epochs):
            model.train()
            for x, y in feed:
                before_step(run, number)
                with replicated.step() as step:
                    step.backward(mse_loss(model(x), y))
                number += 1
        return run.path, replicated.replica.weights_sha256()
