"""Stochastic gradient descent, plain, with momentum, or with Nesterov's. By torch's fused kernel; it knows no ranks."""

import torch
from torch import Tensor

from deepex.replica import Replica


class SGD:
    """v <- mu v + g;  w <- w - eta v, or w - eta (g + mu v) with Nesterov.

    Arguments:
        replica: whose weights it changes.
        momentum: mu; with 0 there is no v.
        nesterov: whether the step looks ahead.

    >>> SGD(Replica(torch.nn.Linear(2, 1)), momentum=0.0, nesterov=False).state
    {}

    Reference: Sutskever et al., On the importance of initialization and momentum in deep learning, ICML 2013.
    """

    decouples_decay = False

    def __init__(self, replica: Replica, *, momentum: float, nesterov: bool) -> None:
        self.momentum, self.nesterov = momentum, nesterov
        self.state = {"momentum": torch.zeros_like(replica.weights)} if momentum else {}

    def update(self, weights: Tensor, gradients: Tensor, rate: float, weight_decay: float) -> None:
        """Change the weights in place; weight decay is part of the gradient."""
        torch._fused_sgd_(
            [weights],
            [gradients],
            list(self.state.values()),
            weight_decay=weight_decay,
            momentum=self.momentum,
            lr=rate,
            dampening=0.0,
            nesterov=self.nesterov,
            maximize=False,
            is_first_step=False,  # the momentum begins with zeros, which is the same
        )
