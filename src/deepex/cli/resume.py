"""`deepex resume`: go on with a run that stopped early."""

from pathlib import Path
from typing import Annotated

import typer

from deepex import api
from deepex.cli.output.options import PageOption, QuietOption, choose_verbosity
from deepex.cli.output.outcome import print_outcome
from deepex.launch.start import is_first_rank


def resume(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="The run directory.")],
    page: PageOption = True,
    quiet: QuietOption = False,
) -> None:
    """Go on from the checkpoint, bit for bit as if nothing had happened."""
    finished = api.resume_run(path, verbosity=choose_verbosity(quiet), page=page)
    if is_first_rank():
        print_outcome(finished, quiet)
