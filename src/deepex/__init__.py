"""deepex trains scientific deep-learning models natively on supercomputers and says where the time goes.

import deepex as dx
run = dx.run("protein", ranks=2, sync="local:epoch")

A name is imported when it is first used, so that a rank does not load pages and studies that it never shows.
"""

from importlib import import_module, metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepex.api import Run, Study, build_recipe, resume_run, run, run_study
    from deepex.errors import DeepexError
    from deepex.tasks.arrays import ArrayTask
    from deepex.train.recipe import Recipe
    from deepex.train.task import Loss, Tally, Target, Task

__version__ = metadata.version("deepex")
__all__ = [
    "ArrayTask",
    "DeepexError",
    "Loss",
    "Recipe",
    "Run",
    "Study",
    "Tally",
    "Target",
    "Task",
    "build_recipe",
    "resume_run",
    "run",
    "run_study",
]
_MODULES = {
    "deepex.api": ("Run", "Study", "build_recipe", "resume_run", "run", "run_study"),
    "deepex.errors": ("DeepexError",),
    "deepex.tasks.arrays": ("ArrayTask",),
    "deepex.train.recipe": ("Recipe",),
    "deepex.train.task": ("Loss", "Tally", "Target", "Task"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    if find_spec(f"deepex.{name}") is not None:  # a package or module, as in dx.models
        return import_module(f"deepex.{name}")
    raise AttributeError(f"module 'deepex' has no attribute {name!r}. It has: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
