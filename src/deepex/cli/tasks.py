"""`deepex tasks`: what can be run."""

import typing

from rich.console import Console
from rich.table import Table

from deepex.tasks import TASKS


def tasks() -> None:
    """List the tasks, their sizes, their targets and what they are."""
    table = Table("task", "sizes", "target", "what it is", box=None, padding=(0, 2, 0, 0))
    for name, entry in TASKS.items():
        task = entry.recipe().task
        sizes = typing.get_args(typing.get_type_hints(type(task)).get("size"))  # a task of one size has none
        what = (entry.recipe.__doc__ or "").splitlines()[0]
        table.add_row(name, ", ".join(sizes) or "-", f"{task.target.metric} {task.target}", what)
    Console(highlight=False).print(table)
