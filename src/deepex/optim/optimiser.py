"""torch's optimisers, applied to all weights as one tensor: one call a step, one state to save."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from deepex.errors import ConfigError
from deepex.replica import Replica


@dataclass(frozen=True, kw_only=True)
class OptimiserConfig:
    """Which optimiser, and its numbers. `momentum` is for sgd, `betas` and `epsilon` for adam and adamw."""

    name: Literal["adam", "adamw", "sgd"] = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    momentum: float = 0.9
    betas: tuple[float, ...] = (0.9, 0.999)
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        if self.learning_rate <= 0:
            raise ConfigError(f"optimiser.learning_rate = {self.learning_rate}. Allowed: numbers above 0.")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(f"optimiser.betas = {self.betas}. Allowed: two numbers from 0 to below 1.")


def build_optimiser(config: OptimiserConfig, replica: Replica) -> torch.optim.Optimizer:
    """The optimiser of a replica's flat weights and gradients.

    >>> build_optimiser(OptimiserConfig(name="sgd"), Replica(nn.Linear(2, 1))).step()
    """
    weights = nn.Parameter(replica.weights)  # shares the block's memory
    weights.grad = replica.gradients
    rate, decay = config.learning_rate, config.weight_decay
    if config.name == "sgd":
        return torch.optim.SGD([weights], lr=rate, momentum=config.momentum, weight_decay=decay)
    betas = (config.betas[0], config.betas[1])
    decoupled = config.name == "adamw"  # weight decay beside the gradient, not in it
    return torch.optim.Adam(
        [weights], lr=rate, betas=betas, eps=config.epsilon, weight_decay=decay, decoupled_weight_decay=decoupled
    )
