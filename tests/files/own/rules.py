"""Optimisers of a user's own: a rule on the flat block, and functions of parameters."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from deepex.replica import Replica


class SignSGD:
    """w <- w - eta sign(v), with v the running mean of gradients."""

    decouples_decay = False

    def __init__(self, replica: Replica, *, momentum: float) -> None:
        self.momentum = momentum
        self.state = {"mean": torch.zeros_like(replica.weights)}

    def update(self, weights: Tensor, gradients: Tensor, rate: float, weight_decay: float) -> None:
        mean = self.state["mean"].mul_(self.momentum).add_(gradients, alpha=1 - self.momentum)
        weights.sub_(mean.sign(), alpha=rate)


class NoRule:
    def __init__(self, replica: Replica) -> None:
        self.state: dict[str, Tensor] = {}


def make_adagrad(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adagrad(parameters, lr=0.05)


number = 3
