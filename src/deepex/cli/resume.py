"""`deepex resume`: go on with a run that stopped early."""

from pathlib import Path
from typing import Annotated

import typer

from deepex import api
from deepex.cli.output.outcome import print_outcome
from deepex.cli.run import choose_verbosity
from deepex.launch.start import is_first_rank


def resume(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="The run directory.")],
    page: Annotated[bool, typer.Option("--page/--no-page", help="Write the page; deepex report does it later.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors and the page's path.")] = False,
) -> None:
    """Go on from the checkpoint, bit for bit as if nothing had happened."""
    finished = api.resume_run(path, verbosity=choose_verbosity(quiet), page=page)
    if is_first_rank():
        print_outcome(finished, quiet)
