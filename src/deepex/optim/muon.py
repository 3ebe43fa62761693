"""Muon: the step of each weight matrix is its momentum made orthogonal, so that all directions move at one pace.

For networks whose features hardly vary: where all samples look alike to a layer, gradients point the same way whatever
is to be learned, and what differs between samples is drowned in it. Vectors step by Adam. It knows no ranks.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from deepex.optim.adam import step_by_adam
from deepex.replica import Replica

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # of s and its third and fifth power; lifts singular values to 0.7 to 1.2
ITERATIONS = 5
VECTOR_SHARE = 0.05  # of the rate, for vectors: about what an element of a matrix moves


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """A parameter of two or more dimensions as rows (its outputs) times columns, in the flat block."""

    start: int
    stop: int
    rows: int

    def of(self, block: Tensor) -> Tensor:
        """Its part of a block; the order of columns is the layout's, and does not matter."""
        return block[self.start : self.stop].view(self.rows, -1)


class Muon:
    """v <- mu v + g;  w <- w - eta max(1, rows / columns)^0.5 orthogonal(g + mu v).

    Arguments:
        replica: whose parameters of two or more dimensions are the matrices.
        momentum: mu.
        betas, epsilon: Adam's, for vectors.

    Reference: Jordan et al., Muon: an optimizer for hidden layers in neural networks (2024).
    """

    decouples_decay = True

    def __init__(self, replica: Replica, *, momentum: float, betas: tuple[float, ...], epsilon: float) -> None:
        self.momentum, self.betas, self.epsilon = momentum, betas, epsilon
        self.matrices = [
            Matrix(start=entry.start, stop=entry.stop, rows=entry.parameter.shape[0])
            for entry in replica.entries
            if entry.parameter.dim() >= 2
        ]
        self.vectors = [(entry.start, entry.stop) for entry in replica.entries if entry.parameter.dim() < 2]
        self.state = {
            "momentum": torch.zeros_like(replica.weights),  # Adam's mean, where vectors stand
            "square": torch.zeros_like(replica.weights),  # for vectors; as long as the weights, since ranks may mix it
            "steps": torch.zeros((), device=replica.weights.device),
        }

    def update(self, weights: Tensor, gradients: Tensor, rate: float, weight_decay: float) -> None:
        """Change the weights in place; weight decay is beside the gradient."""
        if weight_decay:
            weights.mul_(1 - rate * weight_decay)
        for matrix in self.matrices:
            gradient, momentum = matrix.of(gradients), matrix.of(self.state["momentum"])
            momentum.mul_(self.momentum).add_(gradient)
            step = orthogonal(gradient.add(momentum, alpha=self.momentum))
            rows, columns = step.shape
            matrix.of(weights).add_(step, alpha=-rate * max(1.0, rows / columns) ** 0.5)
        self._update_vectors(weights, gradients, VECTOR_SHARE * rate)

    def _update_vectors(self, weights: Tensor, gradients: Tensor, rate: float) -> None:
        mean, square, steps = (self.state[name] for name in ("momentum", "square", "steps"))
        steps.add_(1)
        for start, stop in self.vectors:
            moments = (mean[start:stop], square[start:stop], steps)
            vector, gradient = weights[start:stop], gradients[start:stop]
            step_by_adam(torch._fused_adam_, vector, gradient, moments, rate, self.betas, self.epsilon)


def orthogonal(matrix: Tensor) -> Tensor:
    """A matrix with the singular vectors of this one, and singular values near 1.

    Newton-Schulz: s <- a s + b s^3 + c s^5. The powers are those of the small square X X', with which all factors
    commute, so that only the first product and the last have the size of the matrix.

    >>> bool((torch.linalg.svdvals(orthogonal(torch.randn(8, 32))) > 0.6).all())
    True
    """
    is_tall = matrix.shape[0] > matrix.shape[1]
    wide = matrix.T if is_tall else matrix
    wide = wide / torch.linalg.matrix_norm(wide).clamp_min(1e-20)
    square = wide @ wide.T
    one = torch.eye(len(square), dtype=square.dtype, device=square.device)
    product = one
    first, third, fifth = NEWTON_SCHULZ
    for _ in range(ITERATIONS):
        factor = torch.addmm(torch.add(first * one, square, alpha=third), square, square, alpha=fifth)
        product = factor @ product
        square = factor @ square @ factor
    result: Tensor = product @ wide
    return result.T if is_tall else result
