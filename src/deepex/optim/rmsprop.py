"""RMSprop: each element's step is divided by the size of its recent gradients. It knows no ranks."""

import torch
from torch import Tensor

from deepex.replica import Replica


class RMSprop:
    """s <- a s + (1-a) g^2;  v <- mu v + g / (sqrt(s) + eps);  w <- w - eta v.

    Arguments:
        replica: whose weights it changes.
        momentum: mu; with 0 there is no v.
        alpha: a.
        epsilon: eps.

    >>> list(RMSprop(Replica(torch.nn.Linear(2, 1)), momentum=0.0, alpha=0.99, epsilon=1e-8).state)
    ['square']

    Reference: Tieleman and Hinton, Lecture 6.5, Coursera (2012).
    """

    decouples_decay = False

    def __init__(self, replica: Replica, *, momentum: float, alpha: float, epsilon: float) -> None:
        self.momentum, self.alpha, self.epsilon = momentum, alpha, epsilon
        self.state = {"square": torch.zeros_like(replica.weights)}
        if momentum:
            self.state["momentum"] = torch.zeros_like(replica.weights)

    def update(self, weights: Tensor, gradients: Tensor, rate: float, weight_decay: float) -> None:
        """Change the weights in place; weight decay is part of the gradient."""
        if weight_decay:
            gradients.add_(weights, alpha=weight_decay)
        square = self.state["square"].mul_(self.alpha).addcmul_(gradients, gradients, value=1 - self.alpha)
        root = square.sqrt().add_(self.epsilon)
        if not self.momentum:
            weights.addcdiv_(gradients, root, value=-rate)
            return
        momentum = self.state["momentum"].mul_(self.momentum).addcdiv_(gradients, root)
        weights.add_(momentum, alpha=-rate)
