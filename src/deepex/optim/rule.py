"""What an optimiser is: a rule by which a gradient changes the weights, on the flat block. It knows no ranks."""

from typing import Protocol

from torch import Tensor


class Rule(Protocol):
    """How a gradient becomes a change of the weights.

    A class of rules is made for a replica. Its keyword arguments are the keys of `[optimiser]` that it takes.

    Attributes:
        state: all that it remembers from step to step, by the names that checkpoints have.
        momentum: how much of a step's change goes on in the next.
        decouples_decay: whether weight decay is beside the gradient (as in AdamW) or part of it.
    """

    @property
    def state(self) -> dict[str, Tensor]: ...

    @property
    def momentum(self) -> float: ...

    @property
    def decouples_decay(self) -> bool: ...

    def update(self, weights: Tensor, gradients: Tensor, rate: float, weight_decay: float) -> None:
        """Change the weights in place, at a learning rate."""
