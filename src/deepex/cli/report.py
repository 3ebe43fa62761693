"""`deepex report`: write a run's page anew."""

from pathlib import Path
from typing import Annotated

import typer

from deepex.record.folder import RunFolder
from deepex.report import write_report


def report(path: Annotated[Path, typer.Argument(metavar="RUN", help="The run directory.")]) -> None:
    """Write the page of a run, finished or not, and print its path."""
    print(f"page: {write_report(RunFolder.open(path))}")
