"""From what a user gives in Python or on the command line to one complete recipe."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from deepex.config import merge, override
from deepex.errors import ConfigError, UsageError
from deepex.launch.recipes import from_code, read_recipe, wrap_task
from deepex.optim import OPTIMISERS
from deepex.reference import FORM, is_reference, make_absolute, name_object
from deepex.sync import Sync
from deepex.tasks import default_recipe
from deepex.train.recipe import Recipe
from deepex.train.task import Task

What = str | Path | Task | Recipe
"""A task's name, the path of a recipe.toml, `file.py:name`, a task of one's own, or a recipe."""


def build_recipe(
    what: What,
    *,
    model: Any = None,
    size: str | None = None,
    batch_size: int | None = None,
    epochs: int | None = None,
    optimizer: str | Callable[..., Any] | None = None,
    lr: float | None = None,
    ranks: int | None = None,
    sync: str | Sync | type[Sync] | None = None,
    fabric: str | None = None,
    precision: str | None = None,
    stage: str | None = None,
    seed: int | None = None,
    until: float | None = None,
    settings: tuple[str, ...] | Mapping[str, Any] = (),
) -> Recipe:
    """The recipe of a task's name, a recipe.toml, code or a task of your own, or a recipe, with the given changes.

    >>> build_recipe("protein", ranks=2, batch_size=32).data.batch
    32
    """
    recipe = find_recipe(what, size)
    if isinstance(settings, Mapping):
        settings = tuple(f"{key}={value}" for key, value in settings.items())
    if callable(optimizer) and not isinstance(optimizer, type) and lr is not None:
        raise ConfigError(f"lr = {lr:g} with an optimiser of your own, which has its own rates. Set it there.")
    chosen = {
        "task": {"size": size, "network": _name(model, "network")},
        "world": {"ranks": ranks, "fabric": fabric},
        "data": {"stage": stage, "batch": batch_size},
        "optimiser": {"name": _name(optimizer, "optimizer"), "learning_rate": lr},
        "stop": {"epochs": epochs, "target": until, "at_target": None if until is None else True},
        "sync": _name(sync, "sync"),
        "precision": precision,
        "seed": seed,
    }
    made = override(merge(recipe, _given(chosen)), settings)
    rule = replace(made.optimiser, name=locate_code(made.optimiser.name))
    return replace(made, sync=locate_code(made.sync), optimiser=rule)


def find_recipe(what: What, size: str | None = None) -> Recipe:
    """The recipe that something stands for, as it is."""
    if isinstance(what, Recipe):
        return what
    if isinstance(what, str | Path):
        text = str(what)
        if text.endswith(".toml"):
            return read_recipe(Path(what))
        return from_code(make_absolute(text)) if is_reference(text) else default_recipe(text, size)
    missing = [part for part in ("name", "target", "data", "model", "loss", "evaluate") if not hasattr(what, part)]
    if missing:
        raise UsageError(
            f"{what!r} is a {type(what).__name__}, which is no task: it has no {', '.join(missing)}. Allowed: a task's "
            "name, a recipe.toml, file.py:name, a task or a recipe; or model=, data= and loss= instead."
        )
    return wrap_task(what)


def _name(given: Any, what: str) -> str | None:
    """A text for an object, as recipes have it: as it is written, by its module, or kept until the run is written."""
    if given is None or isinstance(given, str):
        known = what == "optimizer" and given is not None and given.lower() in OPTIMISERS
        return given.lower() if known and given is not None else given
    if isinstance(given, torch.optim.Optimizer | torch.nn.Module):
        raise ConfigError(
            f"{what} is a {type(given).__name__} that is made already. Allowed here: a class, or a function that makes "
            "it, since each rank makes its own."
        )
    return name_object(given)


def locate_code(text: str) -> str:
    """A text with its names of code as processes of any folder find them, also inside a strategy's brackets."""
    return FORM.sub(lambda found: make_absolute(found[0]), text)


def _given(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a nested mapping that are not None."""
    kept: dict[str, Any] = {}
    for key, value in tree.items():
        inner = _given(value) if isinstance(value, Mapping) else value
        if inner is not None and inner != {}:
            kept[key] = inner
    return kept
