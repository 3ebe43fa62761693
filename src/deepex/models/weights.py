"""Weights trained elsewhere, for a network that has the same layers in the same order under other names.

Knows tensors, and nothing of files: read them with `torch.load` or whatever wrote them.
"""

from collections.abc import Mapping
from itertools import zip_longest

import torch
from torch import Tensor, nn

from deepex.errors import DataError


def load_by_position(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Copy the first tensor of `state` to the first of `model`, and so on, if all shapes agree; else change nothing.

    Parameters and buffers stand in the order of `state_dict`. Tensors of whole numbers (batch-norm's count of
    batches) are left out on both sides: older files lack them, and they change no output.

    Arguments:
        model: the network to fill, in place.
        state: a `state_dict` of the same network, by any names.

    >>> ours, theirs = nn.Linear(2, 1), nn.Linear(2, 1)
    >>> load_by_position(ours, {"dense/kernel": theirs.weight, "dense/bias": theirs.bias})
    >>> torch.equal(ours.weight, theirs.weight)
    True
    """
    _check_tensors(state)
    own, given = _without_counts(model.state_dict()), _without_counts(state)
    for position, (left, right) in enumerate(zip_longest(own, given), start=1):
        if left is None or right is None or left[1].shape != right[1].shape:
            raise DataError(
                f"These weights do not fit {type(model).__name__} at tensor {position}: the network has "
                f"{_describe(left)} there, the weights {_describe(right)} (of {len(own)} and {len(given)} tensors). "
                "Nothing was loaded. Build the network for the channels, size and classes that the weights were "
                "trained for, or give weights of the same network in its order."
            )
    with torch.no_grad():
        for (_, target), (_, source) in zip(own, given, strict=True):
            target.copy_(source)


def _check_tensors(state: Mapping[str, object]) -> None:
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise DataError(
                f"Weights are a mapping of names to tensors, and '{name}' is of type {type(value).__name__}. "
                "Nothing was loaded. From a checkpoint that holds more than weights, give the part with the tensors."
            )


def _without_counts(state: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
    return [(name, tensor) for name, tensor in state.items() if tensor.is_floating_point() or tensor.is_complex()]


def _describe(entry: tuple[str, Tensor] | None) -> str:
    return f"'{entry[0]}' of shape {tuple(entry[1].shape)}" if entry else "nothing"
