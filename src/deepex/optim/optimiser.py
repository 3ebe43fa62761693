"""Optimisers on the flat block: all weights are one tensor, so an update is one call and one state to save.

Adam and SGD use torch's fused kernels, which read and write each element once. They know a replica, and no ranks.
"""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from deepex.errors import ConfigError
from deepex.optim.muon import Muon
from deepex.replica import Replica

Name = Literal["adam", "adamw", "muon", "rmsprop", "sgd"]


@dataclass(frozen=True, kw_only=True)
class OptimiserConfig:
    """Which optimiser, and its numbers; they mean what they mean in torch.optim.

    `momentum` is for sgd, muon and rmsprop, `nesterov` for sgd, `betas` for adam, adamw and muon's vectors, `alpha` for
    rmsprop. Weight decay is beside the gradient in adamw and muon and in it elsewhere; with `decay_vectors=false` it
    leaves out parameters of one dimension, which are biases and batch-norm's scales and shifts. `clip_norm` bounds the
    gradient's global norm.
    """

    name: Name = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    decay_vectors: bool = True
    momentum: float = 0.9
    nesterov: bool = False
    betas: tuple[float, ...] = (0.9, 0.999)
    alpha: float = 0.99
    epsilon: float = 1e-8
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        for key in ("learning_rate", "epsilon"):
            if not getattr(self, key) > 0:
                raise ConfigError(f"optimiser.{key} = {getattr(self, key)}. Allowed: numbers above 0.")
        if not self.weight_decay >= 0:
            raise ConfigError(f"optimiser.weight_decay = {self.weight_decay}. Allowed: numbers from 0.")
        for key in ("momentum", "alpha"):
            if not 0 <= getattr(self, key) < 1:
                raise ConfigError(f"optimiser.{key} = {getattr(self, key)}. Allowed: numbers from 0 to below 1.")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(f"optimiser.betas = {self.betas}. Allowed: two numbers from 0 to below 1.")
        if self.nesterov and (self.name != "sgd" or self.momentum == 0):
            raise ConfigError(
                f"optimiser.nesterov=true with {self.name} and momentum {self.momentum:g}. "
                "Allowed: with optimiser.name=sgd and a momentum above 0."
            )
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ConfigError(f"optimiser.clip_norm = {self.clip_norm}. Allowed: numbers above 0, or none.")


class Rule(Protocol):
    """How a gradient becomes a change of the weights. `state` is all that it remembers from step to step."""

    state: dict[str, Tensor]

    def update(self, weights: Tensor, gradients: Tensor, rate: float, weight_decay: float) -> None:
        """Change the weights in place, at a learning rate."""


class Optimiser:
    """A rule at work on a replica: clipping, weight decay where it is wanted, the update.

    >>> replica = Replica(torch.nn.Linear(2, 1))
    >>> Optimiser(OptimiserConfig(name="sgd", clip_norm=1.0), replica).step()
    """

    def __init__(self, config: OptimiserConfig, replica: Replica) -> None:
        self.config, self.replica = config, replica
        self.rate = config.learning_rate  # whoever has a schedule sets it anew before a step
        self.rule = _rule(config, replica)
        self._decay = config.weight_decay
        self._decayed: tuple[list[Tensor], list[Tensor]] = ([], [])
        if self._decay and not config.decay_vectors:
            self._decay = 0.0  # not by the rule, but by _decay_matrices
            spans = _matrix_spans(replica)
            self._decayed = ([replica.weights[s:e] for s, e in spans], [replica.gradients[s:e] for s, e in spans])

    def step(self) -> None:
        """Update the weights by the gradients as they stand, at the rate that holds now."""
        if self.config.clip_norm is not None:
            self._clip(self.config.clip_norm)
        if self._decayed[0]:
            self._decay_matrices()
        self.rule.update(self.replica.weights, self.replica.gradients, self.rate, self._decay)

    @property
    def momentum(self) -> float:
        """How much of a step's change goes on in the next."""
        return self.config.betas[0] if self.config.name in ("adam", "adamw") else self.config.momentum

    def state_dict(self) -> dict[str, Tensor]:
        return self.rule.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, tensor in self.rule.state.items():
            tensor.copy_(state[name])

    def _clip(self, limit: float) -> None:
        """Scale the gradient down to `limit`, by one reduction over the whole block; stays on the device."""
        gradients = self.replica.gradients
        gradients.mul_(torch.clamp(limit / (torch.linalg.vector_norm(gradients) + 1e-6), max=1.0))

    def _decay_matrices(self) -> None:
        weights, gradients = self._decayed
        decay = self.config.weight_decay
        if self.config.name in ("adamw", "muon"):
            torch._foreach_mul_(weights, 1 - self.rate * decay)
        else:
            torch._foreach_add_(gradients, weights, alpha=decay)


class SGD:
    """v <- mu v + g;  w <- w - eta v, or w - eta (g + mu v) with Nesterov."""

    def __init__(self, config: OptimiserConfig, weights: Tensor) -> None:
        self.config = config
        self.state = {"momentum": torch.zeros_like(weights)} if config.momentum else {}

    def update(self, weights: Tensor, gradients: Tensor, rate: float, weight_decay: float) -> None:
        config = self.config
        torch._fused_sgd_(
            [weights],
            [gradients],
            list(self.state.values()),
            weight_decay=weight_decay,
            momentum=config.momentum,
            lr=rate,
            dampening=0.0,
            nesterov=config.nesterov,
            maximize=False,
            is_first_step=False,  # the momentum begins with zeros, which is the same
        )


class Adam:
    """m <- b1 m + (1-b1) g;  v <- b2 v + (1-b2) g^2;  w <- w - eta m^ / (sqrt(v^) + eps), ^ without the bias of zero.

    Reference: Kingma and Ba, Adam, ICLR 2015; Loshchilov and Hutter, Decoupled weight decay, ICLR 2019.
    """

    def __init__(self, config: OptimiserConfig, weights: Tensor) -> None:
        self.config = config
        self.kernel = torch._fused_adamw_ if config.name == "adamw" else torch._fused_adam_
        steps = torch.zeros((), device=weights.device)
        self.state = {"mean": torch.zeros_like(weights), "square": torch.zeros_like(weights), "steps": steps}

    def update(self, weights: Tensor, gradients: Tensor, rate: float, weight_decay: float) -> None:
        config, state = self.config, self.state
        state["steps"].add_(1)
        self.kernel(
            [weights],
            [gradients],
            [state["mean"]],
            [state["square"]],
            [],
            [state["steps"]],
            lr=rate,
            beta1=config.betas[0],
            beta2=config.betas[1],
            weight_decay=weight_decay,
            eps=config.epsilon,
            amsgrad=False,
            maximize=False,
        )


class RMSprop:
    """s <- a s + (1-a) g^2;  v <- mu v + g / (sqrt(s) + eps);  w <- w - eta v."""

    def __init__(self, config: OptimiserConfig, weights: Tensor) -> None:
        self.config = config
        self.state = {"square": torch.zeros_like(weights)}
        if config.momentum:
            self.state["momentum"] = torch.zeros_like(weights)

    def update(self, weights: Tensor, gradients: Tensor, rate: float, weight_decay: float) -> None:
        config, state = self.config, self.state
        if weight_decay:
            gradients.add_(weights, alpha=weight_decay)
        square = state["square"].mul_(config.alpha).addcmul_(gradients, gradients, value=1 - config.alpha)
        root = square.sqrt().add_(config.epsilon)
        if not config.momentum:
            weights.addcdiv_(gradients, root, value=-rate)
            return
        momentum = state["momentum"].mul_(config.momentum).addcdiv_(gradients, root)
        weights.add_(momentum, alpha=-rate)


def _rule(config: OptimiserConfig, replica: Replica) -> Rule:
    match config.name:
        case "adam" | "adamw":
            return Adam(config, replica.weights)
        case "muon":
            return Muon(replica, momentum=config.momentum, betas=config.betas, epsilon=config.epsilon)
        case "rmsprop":
            return RMSprop(config, replica.weights)
        case "sgd":
            return SGD(config, replica.weights)


def _matrix_spans(replica: Replica) -> list[tuple[int, int]]:
    """Where parameters of two or more dimensions stand in the block, neighbours joined."""
    spans: list[tuple[int, int]] = []
    for entry in replica.entries:
        if entry.parameter.dim() < 2:
            continue
        if spans and spans[-1][1] == entry.start:
            spans[-1] = (spans[-1][0], entry.stop)
        else:
            spans.append((entry.start, entry.stop))
    return spans
