"""`deepex tasks`: what can be run."""

from rich.console import Console
from rich.table import Table

from deepex.tasks import TASKS


def tasks() -> None:
    """List the tasks, their targets and what they are."""
    table = Table("task", "target", "what it is", box=None, padding=(0, 2, 0, 0))
    for name, make in TASKS.items():
        target = make().target
        table.add_row(name, f"{target.metric} {target}", (make.__doc__ or "").splitlines()[0])
    Console(highlight=False).print(table)
