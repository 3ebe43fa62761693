"""`deepex data`: make a data set, look into one."""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from deepex.data.pack import PackedSource
from deepex.errors import UsageError, unknown
from deepex.tasks.protein import packaged_file

MAKERS = ("protein",)

app = typer.Typer(help="Make a data set, or look into one.", no_args_is_help=True)


@app.command("make", epilog="Example:  deepex data make protein --frames 50 --out bba.h5")
def make(
    what: Annotated[str, typer.Argument(metavar="TASK", help="Whose data to simulate: protein.")],
    out: Annotated[Path, typer.Option(help="The file to write.")],
    structure: Annotated[
        Path | None, typer.Option(help="A PDB file with the folded structure to start from too.")
    ] = None,
    frames: Annotated[int, typer.Option(help="Frames of each trajectory.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of velocities and noise.")] = 0,
    jobs: Annotated[int | None, typer.Option(help="Trajectories at a time. [default: one a core]")] = None,
) -> None:
    """Simulate a data set. Stop it when you like: the same command goes on where it stood."""
    if what not in MAKERS:
        raise UsageError(unknown("data set", what, MAKERS))
    try:
        from deepex.tasks.protein_data import Order
        from deepex.tasks.protein_data import make as make_protein
    except ImportError as error:
        raise UsageError(
            f"{error.name} is missing. Install the simulator with: pip install 'deepex[protein]'"
        ) from error
    order = Order(out=out, structure=structure, frames=frames, seed=seed, jobs=jobs or len(os.sched_getaffinity(0)))
    columns = (TextColumn("simulating"), BarColumn(), TextColumn("{task.completed}/{task.total} frames"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console()) as progress:
        bar = progress.add_task("simulating", total=None)
        content = make_protein(order, lambda done, total: progress.update(bar, completed=done, total=total))
    print(f"{out}: content sha256 {content}")


@app.command("info", epilog="Example:  deepex data info protein")
def info(
    what: Annotated[str, typer.Argument(metavar="TASK|FILE", help="A packed file, or protein for the packaged one.")],
) -> None:
    """Print what is inside a packed data set, and verify it."""
    source = PackedSource(packaged_file() if what in MAKERS else Path(what))
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{source.path}: {len(source):,} samples, content sha256 {source.content_sha256} (verified)")
    console.print(source.attributes.get("title", ""))
    table = Table(
        "field", "shape", "dtype", "unit", "least", "mean", "most", "description", box=None, padding=(0, 2, 0, 0)
    )
    for name, field in source.spec.fields.items():
        values = source.arrays[name]
        figures = (
            ("", "", "")
            if name in source.bits
            else tuple(f"{figure:.4g}" for figure in (values.min(), values.mean(), values.max()))
        )
        shape = " x ".join(map(str, field.shape)) or "one number"
        dtype = "bits" if name in source.bits else field.dtype
        table.add_row(name, shape, dtype, field.unit, *figures, source.descriptions[name])
    console.print(table)
    for key, value in source.attributes.items():
        if isinstance(value, list):
            console.print(f"{key}: {len(value)} entries")
        else:
            console.print(f"{key}: {value}")
