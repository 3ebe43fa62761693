"""Recipes on disk: into a run directory and out again, a user's own task included."""

from importlib import metadata
from pathlib import Path

import cloudpickle

from deepex.config import merge, read_toml, to_toml
from deepex.errors import ConfigError, UsageError
from deepex.record.folder import RunFolder
from deepex.tasks import default_recipe, is_built_in
from deepex.train.recipe import Recipe
from deepex.train.task import Task

TASK_FILE = "task.pkl"


def write_recipe(folder: RunFolder, recipe: Recipe) -> None:
    """Write recipe.toml; a task of the user's own travels beside it, as a pickle."""
    if not is_built_in(recipe.task):
        folder.write_bytes(TASK_FILE, cloudpickle.dumps(recipe.task))
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
    base = Recipe(task=_read_task(own_task)) if own_task.exists() else default_recipe(task["name"], task.get("size"))
    return merge(base, tree)


def _read_task(path: Path) -> Task:
    """A user's own task, as `write_recipe` left it."""
    try:
        task: Task = cloudpickle.loads(path.read_bytes())
    except (ImportError, AttributeError) as error:  # a module that moved, of deepex or of the user's own
        raise ConfigError(
            f"{path} can't be read: {error}. It was {RunFolder(path.parent).made_by}; this is deepex "
            f"{metadata.version('deepex')}. Start the run again from your own script, or use that version."
        ) from error
    return task
