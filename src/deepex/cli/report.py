"""`deepex report`: write the page of a run or a study anew, or one page of several studies."""

from pathlib import Path
from typing import Annotated

import typer

from deepex import api
from deepex.cli.output.files import check_output
from deepex.errors import UsageError


def report(
    paths: Annotated[list[Path], typer.Argument(metavar="RUN|STUDY…", help="A run, a study, or several studies.")],
    out: Annotated[Path, typer.Option(help="The page of several studies.")] = Path("studies.html"),
) -> None:
    """Write the page of a run or study, finished or not, and print its path; several studies come onto one page."""
    if len(paths) == 1:
        print(f"page: {api.report(paths[0])}")
        return
    if out.suffix != ".html":
        raise UsageError(f"--out {out} is no name of a page. Allowed: a file that ends in .html.")
    check_output(out, "--out")
    print(f"page: {api.compare(paths, out)}")
