"""deepex trains scientific deep-learning models natively on supercomputers and says where the time goes.

import deepex as dx
run = dx.run("protein", ranks=2, sync="local:epoch")

A name is imported when it is first used, so that a rank does not load pages and studies that it never shows.
"""

import sys
from importlib import import_module, metadata
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepex.api import Run, Study, build_recipe, launch, load, resume_run, run, run_study, start
    from deepex.errors import DeepexError
    from deepex.own_loop import Replicated, Session, feed
    from deepex.tasks.own import task
    from deepex.train.recipe import Recipe
    from deepex.train.task import Loss, Tally, Target, Task

__version__ = metadata.version("deepex")
__all__ = [
    "DeepexError",
    "Loss",
    "Recipe",
    "Replicated",
    "Run",
    "Session",
    "Study",
    "Tally",
    "Target",
    "Task",
    "build_recipe",
    "feed",
    "launch",
    "load",
    "resume_run",
    "run",
    "run_study",
    "start",
    "task",
]
_MODULES = {
    "deepex.api": ("Run", "Study", "build_recipe", "launch", "load", "resume_run", "run", "run_study", "start"),
    "deepex.errors": ("DeepexError",),
    "deepex.own_loop": ("Replicated", "Session", "feed"),
    "deepex.tasks.own": ("task",),
    "deepex.train.recipe": ("Recipe",),
    "deepex.train.task": ("Loss", "Tally", "Target", "Task"),
}


class _Package(ModuleType):
    """Keeps `dx.launch` the function: Python would put the package of that name there once something imports it."""

    @property
    def launch(self) -> Any:
        return __getattr__("launch")

    @launch.setter
    def launch(self, package: ModuleType) -> None:
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        return import_module, (self.__name__,)  # in a function that goes to other processes, as any module does


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    if find_spec(f"deepex.{name}") is not None:  # a package or module, as in dx.models
        return import_module(f"deepex.{name}")
    raise AttributeError(f"module 'deepex' has no attribute {name!r}. It has: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
