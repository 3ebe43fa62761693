"""Options about output that several commands have: for programs, for people, and how much is said."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from deepex.cli.output.files import check_output, write_output
from deepex.record.sinks.progress import Verbosity

JsonOption = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the outcome for programs here; - is stdout.")
]
PageOption = Annotated[bool, typer.Option("--page/--no-page", help="Write the page; deepex report does it later.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors and the page's path.")]


class JsonFile:
    """Where `--json` puts the outcome: nowhere, into a file, or on standard output.

    >>> JsonFile(Path("-")).is_stdout, JsonFile(None).is_stdout
    (True, False)
    """

    def __init__(self, path: Path | None) -> None:
        self.is_stdout = str(path) == "-"
        self._path = None if self.is_stdout else path

    def check(self) -> None:
        """Refuse a file that could not be written later, before the work begins."""
        if self._path is not None:
            check_output(self._path, "--json")

    def write(self, text: str) -> None:
        """Write the outcome where it was asked for, if it was."""
        if self.is_stdout:
            print(text, end="")
        elif self._path is not None:
            write_output(self._path, "--json", text)


def choose_verbosity(quiet: bool) -> Verbosity:
    """A bar on a terminal, plain lines elsewhere."""
    if quiet:
        return "quiet"
    return "bar" if sys.stdout.isatty() else "lines"
