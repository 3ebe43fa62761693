"""`deepex report`: write the page of a run or a study anew, or one page of several studies."""

from pathlib import Path
from typing import Annotated

import typer

from deepex import api
from deepex.cli.output.files import check_output
from deepex.errors import UsageError


def report(
    paths: Annotated[list[Path], typer.Argument(metavar="RUN|STUDY…", help="A run, a study, or several studies.")],
    out: Annotated[
        Path | None, typer.Option(help="Another place for the page; of several studies, studies.html if not given.")
    ] = None,
) -> None:
    """Write the page of a run or study, finished or not, and print its path; several studies come onto one page."""
    if out is None and len(paths) > 1:
        out = Path("studies.html")
    if out is not None:
        if out.suffix != ".html":
            raise UsageError(f"--out {out} is no name of a page. Allowed: a file that ends in .html.")
        check_output(out, "--out")
    if len(paths) == 1:
        print(f"page: {api.report(paths[0], out)}")
    elif out is not None:
        print(f"page: {api.compare(paths, out)}")
