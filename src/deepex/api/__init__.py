"""The Python interface: what `import deepex as dx` offers for runs, studies and pages."""

from deepex.api.loops import launch, start
from deepex.api.pages import compare, report
from deepex.api.recipes import build_recipe
from deepex.api.runs import Run, load, resume_run, run
from deepex.api.studies import Study, build_plan, finish_study, run_study

__all__ = [
    "Run",
    "Study",
    "build_plan",
    "build_recipe",
    "compare",
    "finish_study",
    "launch",
    "load",
    "report",
    "resume_run",
    "run",
    "run_study",
    "start",
]
