"""Weights as plain files: tensors by the names that the user's module gives them, in safetensors. No pickle."""

import re
from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from deepex.errors import RunFolderError

Weights = dict[str, Tensor]
"""Tensors by name, as a module's state_dict has them."""


def collect_weights(model: nn.Module) -> Weights:
    """A copy of a module's parameters and buffers, in memory of their own; tied ones stand under each of their names.

    >>> sorted(collect_weights(nn.Linear(2, 1)))
    ['bias', 'weight']
    """
    found = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    return {
        name: value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, value in found.items()
    }


def write_weights(path: Path, weights: Weights, about: Mapping[str, str] | None = None) -> None:
    """Write weights, with a few words about them."""
    try:
        safetensors.torch.save_file(weights, path, {"format": "pt", **(about or {})})
    except safetensors.SafetensorError as error:
        told = re.search(r"os error (\d+)", str(error))
        raise OSError(int(told[1]) if told else 0, str(error)) from error


def read_weights(path: Path) -> Weights:
    """The weights of a file; one that is damaged is an error with its name."""
    try:
        return safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise RunFolderError(f"{path} can't be read: {error}. Bring it back from a copy.") from error


def load_into(model: nn.Module, weights: Weights, source: str) -> nn.Module:
    """Put weights into a module; one whose names or shapes are others is an error that says which."""
    expected = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    missing, unknown = sorted(set(expected) - set(weights)), sorted(set(weights) - set(expected))
    differing = [
        f"{name} is {tuple(weights[name].shape)} there and {tuple(expected[name].shape)} in the module"
        for name in expected
        if name in weights and weights[name].shape != expected[name].shape
    ]
    if missing or unknown or differing:
        told = [f"the module has {_list(missing)}, which {source} has not"] if missing else []
        told += [f"{source} has {_list(unknown)}, which the module has not"] if unknown else []
        told += [_list(differing)] if differing else []
        raise RunFolderError(
            f"the weights of {source} don't fit the module {type(model).__name__}: {'; '.join(told)}. Has its code "
            "changed since? Give the module as it was, or take the tensors by name with dx.Run(…).state_dict()."
        )
    model.load_state_dict(weights, strict=False)  # what is no tensor, a module's extra state, stays as it is
    return model


def _list(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
