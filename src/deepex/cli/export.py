"""`deepex export`: a run's trained weights as one file."""

from pathlib import Path
from typing import Annotated

import typer

from deepex.cli.output.files import check_output
from deepex.deploy.load import export_weights
from deepex.record.folder import RunFolder


def export(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="The run directory.")],
    out: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write, as in weights.safetensors.")],
    best: Annotated[bool, typer.Option("--best", help="The weights of the best epoch. [default: the last]")] = False,
) -> None:
    """Write the trained weights, by the names of the module, as safetensors; prints the file's path."""
    check_output(out, "FILE")
    print(export_weights(RunFolder.open(path), out, "best" if best else "last"))
