"""The science problems, one a file, and the table of their default recipes."""

from collections.abc import Callable

from deepex.config import merge
from deepex.errors import UsageError, unknown
from deepex.tasks import atomai, cosmoflow, fashion, imagenet, protein
from deepex.train.recipe import Recipe

TASKS: dict[str, Callable[..., Recipe]] = {
    "atomai": atomai.recipe,
    "cosmoflow": cosmoflow.recipe,
    "fashion": fashion.recipe,
    "imagenet": imagenet.recipe,
    "protein": protein.recipe,
}


def default_recipe(name: str, size: str | None = None) -> Recipe:
    """The recipe that a task suggests, at its smallest size or a given one.

    >>> default_recipe("protein").task.name
    'protein'
    """
    if name not in TASKS:
        raise UsageError(unknown("task", name, TASKS) + " See them with: deepex tasks")
    make = TASKS[name]
    if size is None:
        return make()
    merge(make(), {"task": {"size": size}})  # refuses a size that the task has not
    return make(size)
