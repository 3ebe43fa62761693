"""deepex trains scientific deep-learning models natively on supercomputers and says where the time goes.

import deepex as dx
run = dx.run("protein", ranks=2, sync="local:epoch")
"""

from importlib import metadata

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
