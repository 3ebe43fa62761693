"""Adam, by torch's fused kernel, which reads and writes each element once. It knows no ranks."""

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from deepex.replica import Replica

Kernel = Callable[..., object]
"""`torch._fused_adam_`, or the same with weight decay beside the gradient."""


class Adam:
    """m <- b1 m + (1-b1) g;  v <- b2 v + (1-b2) g^2;  w <- w - eta m^ / (sqrt(v^) + eps), ^ without the bias of zero.

    Arguments:
        replica: whose weights it changes.
        betas: b1 and b2.
        epsilon: eps.

    >>> sorted(Adam(Replica(torch.nn.Linear(2, 1)), betas=(0.9, 0.999), epsilon=1e-8).state)
    ['mean', 'square', 'steps']

    Reference: Kingma and Ba, Adam: a method for stochastic optimization, ICLR 2015.
    """

    kernel: ClassVar[Kernel] = staticmethod(torch._fused_adam_)
    decouples_decay = False

    def __init__(self, replica: Replica, *, betas: tuple[float, ...], epsilon: float) -> None:
        self.momentum, self.betas, self.epsilon = betas[0], betas, epsilon
        self.state = {
            "mean": torch.zeros_like(replica.weights),
            "square": torch.zeros_like(replica.weights),
            "steps": torch.zeros((), device=replica.weights.device),
        }

    def update(self, weights: Tensor, gradients: Tensor, rate: float, weight_decay: float) -> None:
        """Change the weights in place."""
        self.state["steps"].add_(1)
        moments = (self.state["mean"], self.state["square"], self.state["steps"])
        step_by_adam(self.kernel, weights, gradients, moments, rate, self.betas, self.epsilon, weight_decay)


def step_by_adam(
    kernel: Kernel,
    weights: Tensor,
    gradients: Tensor,
    moments: tuple[Tensor, Tensor, Tensor],
    rate: float,
    betas: tuple[float, ...],
    epsilon: float,
    weight_decay: float = 0.0,
) -> None:
    """One call of a kernel; `moments` are the gradient's mean, that of its square, and the number of steps."""
    mean, square, steps = moments
    kernel(
        [weights],
        [gradients],
        [mean],
        [square],
        [],
        [steps],
        lr=rate,
        beta1=betas[0],
        beta2=betas[1],
        weight_decay=weight_decay,
        eps=epsilon,
        amsgrad=False,
        maximize=False,
    )
