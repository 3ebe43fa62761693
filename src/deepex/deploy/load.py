"""A run's trained model: its weights by name, and the module with them in it. Nothing of the training is needed."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from deepex.errors import ConfigError, UsageError, unknown
from deepex.launch.recipes import read_recipe
from deepex.record.folder import RunFolder
from deepex.record.shown_recipe import read_shown_recipe
from deepex.record.weights import Weights, load_into, read_weights
from deepex.reference import load_object
from deepex.train.checkpoint import Which, weights_file

ModelOf = Callable[[], nn.Module] | nn.Module | str


def load_weights(folder: RunFolder, which: Which = "last") -> Weights:
    """A run's weights by the names of its own module."""
    if which not in ("last", "best"):
        raise UsageError("weights: " + unknown("choice", str(which), ("best", "last")))
    return read_weights(weights_file(folder, which))


def load_model(folder: RunFolder, which: Which = "last", model: ModelOf | None = None) -> nn.Module:
    """A run's trained module, in eval mode, on the CPU.

    Arguments:
        folder: the run's.
        which: the weights of the last epoch, or those of the best by the metric.
        model: the module to put them into, or what makes it; by default as the run's own recipe makes it.
    """
    weights = load_weights(folder, which)
    with torch.random.fork_rng(devices=[]):  # a fresh module draws weights that are then replaced
        made = build_module(folder) if model is None else _make(model)
    return load_into(made, weights, str(folder.path)).eval()


def build_module(folder: RunFolder) -> nn.Module:
    """A run's module with fresh weights, as its recipe makes it."""
    code = read_shown_recipe(folder).code
    if code.endswith(".py"):
        raise UsageError(
            f"{folder.path} is a run of the loop in {code}, which made its module itself. Give the module: "
            f'dx.load("{folder.path}", model=YourModule())'
        )
    try:
        return read_recipe(folder.recipe).task.model()
    except ConfigError as error:
        raise ConfigError(
            f'{error} Or give the module yourself: dx.load("{folder.path}", model=YourModule())'
        ) from error


def export_weights(folder: RunFolder, out: Path, which: Which = "last") -> Path:
    """Copy a run's weights into a safetensors file, whole or not at all."""
    if out.suffix != ".safetensors":
        raise UsageError(f"{out} is no name for weights. Allowed: a file that ends in .safetensors.")
    content = weights_file(folder, which).read_bytes()
    return RunFolder(out.parent).write_bytes(out.name, content)


def _make(model: ModelOf) -> nn.Module:
    found = load_object(model) if isinstance(model, str) else model
    try:
        made = found if isinstance(found, nn.Module) else found()
    except TypeError as error:
        raise ConfigError(
            f"model can't be made without arguments: {error}. Give the module itself, or a function that makes it."
        ) from error
    if not isinstance(made, nn.Module):
        raise ConfigError(f"model is a {type(made).__name__}. Allowed: an nn.Module, or what makes one.")
    return made
