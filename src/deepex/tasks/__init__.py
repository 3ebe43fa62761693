"""The science problems, one a file, and the table of their default recipes."""

from collections.abc import Callable

from deepex.errors import UsageError, unknown
from deepex.tasks import protein
from deepex.train.recipe import Recipe

TASKS: dict[str, Callable[[], Recipe]] = {"protein": protein.recipe}


def default_recipe(name: str) -> Recipe:
    """The recipe that a task suggests.

    >>> default_recipe("protein").task.name
    'protein'
    """
    if name not in TASKS:
        raise UsageError(unknown("task", name, TASKS) + " See them with: deepex tasks")
    return TASKS[name]()
