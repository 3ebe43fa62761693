"""Replica: a model whose weights, gradients and statistics are views into flat blocks.

One block is one message, one optimiser call and one checkpoint write. It knows tensors, and nothing of ranks.
"""

import hashlib

import torch
from torch import Tensor, nn

from deepex.errors import ConfigError


class Replica:
    """A model laid out in contiguous memory.

    Attributes:
        model: the module; its parameters, gradients and floating buffers are views into the blocks below.
        block: weights and statistics, end to end: what replicas average in ONE call.
        weights: the trainable weights, in reverse order of registration, so that the gradients which backward
            finishes first stand first.
        gradients: the gradients, in the same order as `weights`.
        statistics: the floating buffers (batch-norm's running mean and variance).

    >>> replica = Replica(nn.Linear(3, 2))
    >>> replica.weights.numel(), replica.gradients.numel()
    (8, 8)
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        trainable = [(name, p) for name, p in model.named_parameters() if p.requires_grad][::-1]
        if not trainable:
            raise ConfigError("the model has no trainable weights. Give at least one parameter requires_grad=True.")
        for name, parameter in trainable:
            if parameter.dtype != torch.float32:
                raise ConfigError(
                    f"parameter '{name}' is {parameter.dtype}; a replica's weights are torch.float32. "
                    "Build the model in float32."
                )
        buffers = [
            (owner, leaf, buffer)
            for owner in model.modules()
            for leaf, buffer in owner.named_buffers(recurse=False)
            if buffer.is_floating_point()
        ]
        num_weights = sum(p.numel() for _, p in trainable)
        num_statistics = sum(b.numel() for _, _, b in buffers)
        device = trainable[0][1].device
        self.block = torch.empty(num_weights + num_statistics, dtype=torch.float32, device=device)
        self.weights = self.block[:num_weights]
        self.statistics = self.block[num_weights:]
        self.gradients = torch.zeros_like(self.weights)
        offset = 0
        for _, parameter in trainable:
            view = _claim(self.weights, offset, parameter.data)
            parameter.data = view
            parameter.grad = self.gradients[offset : offset + view.numel()].view_as(view)
            offset += view.numel()
        offset = 0
        for owner, leaf, buffer in buffers:
            owner._buffers[leaf] = _claim(self.statistics, offset, buffer)
            offset += buffer.numel()

    def weights_sha256(self) -> str:
        """A fingerprint of the weights and statistics, to compare runs bit for bit."""
        return hashlib.sha256(self.block.detach().cpu().numpy().tobytes()).hexdigest()


def _claim(block: Tensor, offset: int, values: Tensor) -> Tensor:
    """Copy `values` into the block and return the view that stands for them."""
    view = block[offset : offset + values.numel()].view(values.shape)
    view.copy_(values)
    return view
