"""An optimiser at work: all weights are one tensor, so an update is one call and one state to save.

It knows a replica and a rule, and no ranks. A rule is a file of its own: see the table in config.py.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from deepex.optim.config import OptimiserConfig
from deepex.optim.torch_rule import TorchRule
from deepex.replica import Replica


class Optimiser:
    """A rule at work on a replica: clipping, weight decay where it is wanted, the update.

    >>> replica = Replica(torch.nn.Linear(2, 1))
    >>> Optimiser(OptimiserConfig(name="sgd", clip_norm=1.0), replica).step()
    """

    def __init__(self, config: OptimiserConfig, replica: Replica) -> None:
        self.config, self.replica = config, replica
        self.rate = config.learning_rate  # whoever has a schedule sets it anew before a step
        self.rule = config.build(replica)
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
        return self.rule.momentum

    @property
    def moments(self) -> Mapping[str, Tensor]:
        """What it remembers, by name; those as long as the weights belong to them, element by element."""
        return self.rule.moments if isinstance(self.rule, TorchRule) else self.rule.state

    def state_dict(self) -> dict[str, Tensor]:
        return self.rule.state_dict() if isinstance(self.rule, TorchRule) else self.rule.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if isinstance(self.rule, TorchRule):
            self.rule.load_state_dict(state)
            return
        for name, tensor in self.rule.state.items():
            tensor.copy_(state[name])

    def _clip(self, limit: float) -> None:
        """Scale the gradient down to `limit`, by one reduction over the whole block; stays on the device."""
        gradients = self.replica.gradients
        gradients.mul_(torch.clamp(limit / (torch.linalg.vector_norm(gradients) + 1e-6), max=1.0))

    def _decay_matrices(self) -> None:
        weights, gradients = self._decayed
        decay = self.config.weight_decay
        if self.rule.decouples_decay:
            torch._foreach_mul_(weights, 1 - self.rate * decay)
        else:
            torch._foreach_add_(gradients, weights, alpha=decay)


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
