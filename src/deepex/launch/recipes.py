"""Recipes on disk: into a run directory and out again, with tasks of a user's own."""

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from deepex.config import merge, read_toml, settings, to_toml, to_tree
from deepex.data import DataConfig
from deepex.data.dataset import find_batch
from deepex.errors import ConfigError, DeepexError, UsageError
from deepex.record.folder import RunFolder
from deepex.reference import (
    OBJECTS_FILE,
    dump_objects,
    load_object,
    load_objects,
    make_absolute,
    mentioned_objects,
    name_object,
)
from deepex.tasks import default_recipe, is_built_in
from deepex.tasks.own import OwnTask
from deepex.train.recipe import Recipe
from deepex.train.task import Target, Task

OLD_TASK_FILE = "task.pkl"
PARTS_OF_A_TASK = ("name", "target", "data", "model", "loss", "evaluate")


def write_recipe(folder: RunFolder, recipe: Recipe) -> None:
    """Write recipe.toml; objects that only a script or notebook has travel beside it."""
    for name, content in pack_recipe(recipe).items():
        folder.write_bytes(name, content)


def pack_recipe(recipe: Recipe, tell_unfit: Callable[[ConfigError], None] | None = None) -> dict[str, bytes]:
    """The files that a recipe becomes, recipe.toml the last.

    Objects that can't leave this process are an error, or told and left out where that will do.
    """
    text = to_toml(name_code(recipe))
    names, files = mentioned_objects(text), {"recipe.toml": text.encode()}
    try:
        return {OBJECTS_FILE: dump_objects(names), **files} if names else files
    except ConfigError as error:
        if tell_unfit is None:
            raise
        tell_unfit(error)
        return files


def read_recipe(path: Path) -> Recipe:
    """The recipe in a TOML file: its task's defaults, with what the file says in their place."""
    try:
        text = path.read_text()
    except OSError as error:
        raise UsageError(
            f"{path} can't be read: {error.strerror}. Give a recipe.toml, or a task: deepex tasks"
        ) from error
    tree = read_toml(text, str(path))
    task, code = tree.get("task"), tree.get("code", "")
    if not isinstance(task, dict) or "name" not in task:
        raise ConfigError(f'{path} does not name its task. Begin with a table [task] that has name = "protein".')
    if mentioned_objects(text):
        load_objects(path.parent / OBJECTS_FILE)
    if isinstance(code, str) and code.endswith(".py"):
        raise UsageError(
            f"{path} is of a run whose loop stands in {code}. Run that script again: python {code}. To go on with a "
            f'run that was stopped, begin its loop with dx.start(resume="{path.parent}").'
        )
    if not code and (path.parent / OLD_TASK_FILE).exists():
        raise ConfigError(
            f"{path.parent / OLD_TASK_FILE} is a task of your own as deepex 0.1 kept it, and this version loads no "
            "such file. Start the run again from your own script, or use that version."
        )
    return merge(from_code(code) if code else default_recipe(task["name"], task.get("size")), tree)


def from_code(text: str) -> Recipe:
    """The recipe that a name of the form `file.py:name` leads to: a task, a recipe, or what makes one."""
    found = load_object(text)
    if isinstance(found, type) or (callable(found) and not _is_task(found)):
        try:
            found = found()
        except TypeError as error:
            raise ConfigError(
                f"'{text}' can't be called without arguments: {error}. Allowed: a task, a recipe, or a class or "
                "function that makes one of its own accord."
            ) from error
    if isinstance(found, Recipe):
        return replace(found, code=make_absolute(text))
    if _is_task(found):
        return replace(wrap_task(found), code=make_absolute(text))
    missing = [part for part in PARTS_OF_A_TASK if not hasattr(found, part)]
    raise ConfigError(
        f"'{text}' is a {type(found).__name__}, which is no task: it has no {', '.join(missing)}. Allowed: a task, a "
        "recipe, or a class or function that makes one."
    )


def wrap_task(task: Task) -> Recipe:
    """A task with the defaults of all else; of a loader that it was given, the batch size."""
    if not dataclasses.is_dataclass(task):
        raise ConfigError(
            f"task {type(task).__name__} is no dataclass. Write @dataclass(frozen=True, kw_only=True) above it: its "
            "fields are the [task] of a recipe."
        )
    if not isinstance(task.target, Target):
        raise ConfigError(
            f"target of task {type(task).__name__} is a {type(task.target).__name__}. Allowed: "
            'dx.Target(metric="error", threshold=0.1), without a threshold for a task that just trains.'
        )
    batch = find_batch(task.samples) if isinstance(task, OwnTask) else None
    return Recipe(task=task) if batch is None else Recipe(task=task, data=DataConfig(batch=batch))


def name_code(recipe: Recipe) -> Recipe:
    """The recipe with a name for its task's code: none for a task in the table, and one that it has stays."""
    if recipe.code or is_built_in(recipe.task):
        return recipe
    kind = type(recipe.task)
    if _is_known_by_settings(recipe.task):
        reference = name_object(kind)
        if not reference.startswith(OBJECTS_FILE):
            return replace(recipe, code=reference)
    return replace(recipe, code=name_object(recipe.task, "task"))


def _is_task(found: Any) -> bool:
    return not isinstance(found, type) and all(hasattr(found, part) for part in PARTS_OF_A_TASK)


def _is_known_by_settings(task: Task) -> bool:
    """Whether a task's class and its settings say all of it, so that another process can make the same."""
    if not dataclasses.is_dataclass(task) or len(settings(type(task))) < len(dataclasses.fields(task)):
        return False
    try:
        again = merge(Recipe(task=type(task)()), {"task": to_tree(task)}).task
    except (TypeError, DeepexError):
        return False
    return again == task
