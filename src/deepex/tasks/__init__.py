"""The science problems, one a file, and the one table of them: default recipes, and data that can be made."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from deepex.config import merge
from deepex.errors import UsageError, unknown
from deepex.tasks import atomai, cosmoflow, fashion, imagenet, protein
from deepex.tasks.data.atomai import AtomaiData
from deepex.tasks.data.cosmoflow import CosmoflowData
from deepex.tasks.data.imagenet import ImagenetData
from deepex.tasks.data.make import DataMaker
from deepex.tasks.data.protein import ProteinData
from deepex.train.recipe import Recipe
from deepex.train.task import Task


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A task of the table.

    Attributes:
        recipe: what it suggests, at its smallest size or a given one; its docstring says what the task is.
        maker: what makes its data set of a size, if something does.
    """

    recipe: Callable[..., Recipe]
    maker: Callable[[str], DataMaker] | None = None


TASKS = {
    "atomai": Entry(recipe=atomai.recipe, maker=AtomaiData.of_size),
    "cosmoflow": Entry(recipe=cosmoflow.recipe, maker=CosmoflowData.of_size),
    "fashion": Entry(recipe=fashion.recipe),
    "imagenet": Entry(recipe=imagenet.recipe, maker=ImagenetData.of_size),
    "protein": Entry(recipe=protein.recipe, maker=ProteinData.of_size),
}
TASKS_WITH_MAKERS = [name for name, entry in TASKS.items() if entry.maker is not None]


@runtime_checkable
class InOneFile(Protocol):
    """A task whose data set is one packed file."""

    @property
    def path(self) -> Path: ...


def default_recipe(name: str, size: str | None = None) -> Recipe:
    """The recipe that a task suggests, at its smallest size or a given one.

    >>> default_recipe("protein").task.name
    'protein'
    """
    if name not in TASKS:
        raise UsageError(unknown("task", name, TASKS) + " See them with: deepex tasks")
    make = TASKS[name].recipe
    if size is None:
        return make()
    merge(make(), {"task": {"size": size}})  # refuses a size that the task has not
    return make(size)


def data_maker(name: str, size: str) -> DataMaker:
    """What makes a task's data set of a size: settings that `key=value` can change."""
    maker = TASKS[name].maker if name in TASKS else None
    if maker is None:
        raise UsageError(unknown("data set", name, TASKS_WITH_MAKERS))
    return maker(size)


def data_path(name: str) -> Path | None:
    """The file with a task's data at its smallest size; None if it is not there, or there is no such task.

    >>> data_path("protein").name
    'bba.h5'
    """
    task = TASKS[name].recipe().task if name in TASKS else None
    return task.path if isinstance(task, InOneFile) and task.path.exists() else None


def is_built_in(task: Task) -> bool:
    """Whether a task is of the table, and so is known by its settings; a user's own is code that travels beside them.

    >>> is_built_in(default_recipe("protein").task)
    True
    """
    return type(task) in {type(entry.recipe().task) for entry in TASKS.values()}
