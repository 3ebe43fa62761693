"""Recipes on disk: into a run directory and out again, a user's own task included."""

from pathlib import Path

import cloudpickle

from deepex.config import merge, read_toml, to_toml
from deepex.errors import ConfigError, UsageError
from deepex.record.folder import RunFolder
from deepex.tasks import TASKS, default_recipe
from deepex.train.recipe import Recipe

TASK_FILE = "task.pkl"


def write_recipe(folder: RunFolder, recipe: Recipe) -> None:
    """Write recipe.toml; a task that is not in the table travels beside it, as a pickle."""
    if type(recipe.task) not in {type(make().task) for make in TASKS.values()}:
        with folder.writing():
            (folder.path / TASK_FILE).write_bytes(cloudpickle.dumps(recipe.task))
    folder.write_text("recipe.toml", to_toml(recipe))


def read_recipe(path: Path) -> Recipe:
    """The recipe in a TOML file: its task's defaults, with what the file says in their place."""
    try:
        text = path.read_text()
    except OSError as error:
        raise UsageError(
            f"{path} can't be read: {error.strerror}. Give a recipe.toml, or a task: deepex tasks"
        ) from error
    tree = read_toml(text, str(path))
    task = tree.get("task")
    if not isinstance(task, dict) or "name" not in task:
        raise ConfigError(f'{path} does not name its task. Begin with a table [task] that has name = "protein".')
    own_task = path.parent / TASK_FILE
    base = (
        Recipe(task=cloudpickle.loads(own_task.read_bytes()))
        if own_task.exists()
        else default_recipe(task["name"], task.get("size"))
    )
    return merge(base, tree)
