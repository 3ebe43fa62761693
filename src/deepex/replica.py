"""Replica: a model whose weights, gradients and statistics are views into flat blocks.

One block is one message, one optimiser call and one checkpoint write. It knows tensors, and nothing of ranks.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from deepex.errors import ConfigError

Layout = Literal["contiguous", "channels_last"]
"""How convolutions keep their weights, and with them all images: channels outermost, or innermost."""


@runtime_checkable
class LaidOut(Protocol):
    """A network that declares the layout in which it runs fastest."""

    layout: Layout


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A parameter's place in the blocks: elements `start` to `stop` of the weights and of the gradients."""

    name: str
    parameter: nn.Parameter
    gradient: Tensor
    start: int
    stop: int


class Replica:
    """A model laid out in contiguous memory.

    Arguments:
        model: any module; tied weights stand once, frozen ones stay where they are.
        layout: with `channels_last`, weights of convolutions have channels-last strides inside the block.
        empty: what gives memory for the blocks, so many float32 zeros; by default any memory of the model's device.

    Attributes:
        model: the module; its parameters, gradients and floating buffers are views into the blocks below.
        block: weights and statistics, end to end: what replicas average in ONE call.
        weights: the trainable weights, in reverse order of registration, so that the gradients which backward
            finishes first stand first.
        gradients: the gradients, in the same order as `weights`.
        statistics: the fp32 buffers (batch-norm's running mean and variance).
        entries: the parameters in the order of the block.
        collects: whether gradients that a backward adds here are this model's own step: not while another model's
            step goes backward through this one, as a generator's does through its discriminator.

    >>> replica = Replica(nn.Linear(3, 2))
    >>> replica.weights.numel(), replica.gradients.numel()
    (8, 8)
    """

    def __init__(
        self, model: nn.Module, layout: Layout = "contiguous", empty: Callable[[int], Tensor] | None = None
    ) -> None:
        self.model, self.layout, self.collects = model, layout, True
        trainable = [(name, p) for name, p in model.named_parameters() if p.requires_grad][::-1]
        _check_parameters(trainable)
        inner = _channels_last_parameters(model) if layout == "channels_last" else set()
        num_weights, device = sum(p.numel() for _, p in trainable), trainable[0][1].device
        allocate = empty or (lambda numel: torch.zeros(numel, device=device))
        self.block = allocate(num_weights + sum(buffer.numel() for buffer in self._buffers()))
        self.weights, self.statistics = self.block[:num_weights], self.block[num_weights:]
        self.gradients = allocate(num_weights)
        self.entries = self._claim_parameters(trainable, inner)
        self._claim_buffers()
        for parameter in model.parameters():
            if not parameter.requires_grad and parameter in inner:
                parameter.data = parameter.data.contiguous(memory_format=_channels_last_format(parameter))

    def move_to(self, block: Tensor) -> None:
        """Let weights and statistics be views into another block, as long as this one, and leave what stands there."""
        before, self.block = self.block, block
        self.weights, self.statistics = block[: len(self.weights)], block[len(self.weights) :]
        for entry in self.entries:
            old = entry.parameter.data
            entry.parameter.data = self.weights.as_strided(
                old.shape, old.stride(), block.storage_offset() + entry.start
            )
        for owner in self.model.modules():
            for leaf, held in owner.named_buffers(recurse=False):
                if held.dtype == torch.float32:
                    offset = block.storage_offset() + held.storage_offset() - before.storage_offset()
                    owner._buffers[leaf] = block.as_strided(held.shape, held.stride(), offset)

    def loose_tensors(self) -> dict[str, Tensor]:
        """What a module holds beside the block, by name: frozen parameters, and buffers that are not float32."""
        frozen = {name: held.data for name, held in self.model.named_parameters() if not held.requires_grad}
        buffers = {name: held for name, held in self.model.named_buffers() if held.dtype != torch.float32}
        return {**frozen, **buffers}

    def check_parameters(self) -> None:
        """The module still has the parameters that were moved into the block, and they still stand there."""
        known = {id(entry.parameter) for entry in self.entries}
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad and id(parameter) not in known:
                raise ConfigError(
                    f"parameter '{name}' is new: it came into the model after its replica was made, and would not be "
                    "trained. Change the model first (load_state_dict without assign=True keeps its parameters)."
                )
        for entry in self.entries:
            place = self.weights.data_ptr() + entry.start * self.weights.element_size()
            if entry.parameter.dtype != torch.float32 or entry.parameter.data_ptr() != place:
                raise ConfigError(
                    f"parameter '{entry.name}' has left the flat block: it was converted or moved after its replica "
                    "was made. Call .to(), .double() and the like before."
                )

    def release(self) -> None:
        """Give the module memory of its own again, with what stands in the blocks, and no gradients."""
        self.move_to(self.block.clone())
        for entry in self.entries:
            entry.parameter.data = entry.parameter.data.clone(memory_format=torch.preserve_format)
            entry.parameter.grad = None

    def weights_sha256(self) -> str:
        """A fingerprint of the weights and statistics, to compare runs bit for bit."""
        return hashlib.sha256(self.block.detach().cpu().numpy().tobytes()).hexdigest()

    def check_gradients(self) -> None:
        """After a backward: every gradient is still the view into its block, none was put in its place."""
        for entry in self.entries:
            gradient = entry.parameter.grad
            if gradient is None or gradient.data_ptr() != entry.gradient.data_ptr():
                put = "none" if gradient is None else "a tensor of its own"
                raise ConfigError(
                    f"parameter '{entry.name}' did not add its gradient to the flat block: in its place stands {put}. "
                    "Leave parameters and their .grad as they are while training: no zero_grad(), no new nn.Parameter."
                )

    def _claim_parameters(self, trainable: list[tuple[str, nn.Parameter]], inner: set[nn.Parameter]) -> list[Entry]:
        """Move parameters into the blocks, one behind the other."""
        entries, start = [], 0
        for name, parameter in trainable:
            stop = start + parameter.numel()
            last = parameter in inner
            weight = _view(self.weights[start:stop], parameter.shape, channels_last=last)
            weight.copy_(parameter.data)
            parameter.data = weight
            gradient = _view(self.gradients[start:stop], parameter.shape, channels_last=last)
            parameter.grad = gradient
            entries.append(Entry(name=name, parameter=parameter, gradient=gradient, start=start, stop=stop))
            start = stop
        return entries

    def _buffers(self) -> list[Tensor]:
        """The fp32 buffers, each once."""
        return list({id(held): held for held in self.model.buffers() if held.dtype == torch.float32}.values())

    def _claim_buffers(self) -> None:
        """Move fp32 buffers into the block; one that two modules share stays shared."""
        views, start = {}, 0
        for buffer in self._buffers():
            view = views[id(buffer)] = self.statistics[start : start + buffer.numel()].view(buffer.shape)
            view.copy_(buffer)
            start += buffer.numel()
        for owner in self.model.modules():
            for leaf, held in owner.named_buffers(recurse=False):
                if id(held) in views:
                    owner._buffers[leaf] = views[id(held)]


def _check_parameters(trainable: list[tuple[str, nn.Parameter]]) -> None:
    """Refuse, by name, what can't be a view into one block of float32."""
    if not trainable:
        raise ConfigError("the model has no trainable weights. Give at least one parameter requires_grad=True.")
    for name, parameter in trainable:
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ConfigError(
                f"parameter '{name}' has no shape yet. Call the model once before training, or name sizes."
            )
        if parameter.dtype != torch.float32:
            raise ConfigError(
                f"parameter '{name}' is {parameter.dtype}; a replica's weights are torch.float32. "
                "Build the model in float32; --precision bf16 computes in bf16 where that is safe."
            )
        if parameter.device != trainable[0][1].device:
            raise ConfigError(
                f"parameter '{name}' is on {parameter.device} and '{trainable[0][0]}' on {trainable[0][1].device}. "
                "Build the whole model on one device."
            )
    spans = sorted((*_span(parameter), name) for name, parameter in trainable if parameter.numel())
    for (_, end, name), (begin, _, other) in pairwise(spans):
        if begin < end:
            raise ConfigError(
                f"parameters '{name}' and '{other}' share memory without being one parameter. "
                "Tie weights by assigning the same nn.Parameter to both places."
            )


def _span(tensor: Tensor) -> tuple[int, int]:
    """The addresses from a tensor's first element to behind its last."""
    steps = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (steps + 1) * tensor.element_size()


def _channels_last_parameters(model: nn.Module) -> set[nn.Parameter]:
    """The weights of two- and three-dimensional convolutions."""
    owners = (module for module in model.modules() if isinstance(module, _ConvNd))
    return {cast(nn.Parameter, owner.weight) for owner in owners if owner.weight.dim() in (4, 5)}


def _channels_last_format(weight: Tensor) -> torch.memory_format:
    return torch.channels_last if weight.dim() == 4 else torch.channels_last_3d


def _view(flat: Tensor, shape: torch.Size, *, channels_last: bool) -> Tensor:
    """Consecutive elements as a tensor of `shape`, its second dimension innermost if `channels_last`."""
    if not channels_last:
        return flat.view(shape)
    return flat.view(shape[0], *shape[2:], shape[1]).movedim(-1, 1)
