"""A module, its data and its loss, as a task in a file."""

import torch
from torch import nn

import deepex as dx

x = torch.randn(480, 3, generator=torch.Generator().manual_seed(0))
plane = dx.task(
    name="plane", model=lambda: nn.Linear(3, 1), data=(x, x.sum(dim=1, keepdim=True)), loss=nn.functional.mse_loss
)


def half() -> dx.Recipe:
    """The same in half precision, as a recipe."""
    return dx.Recipe(task=plane, precision="bf16", seed=3)
