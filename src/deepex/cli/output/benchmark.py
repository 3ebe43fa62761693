"""What the commands of `deepex bench` share: the console, the files, and the machine that they name."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from deepex.cli.output.files import check_output, write_output
from deepex.cli.output.options import JsonFile
from deepex.errors import UsageError, unknown
from deepex.record.provenance import describe_hardware, describe_versions

MarkdownOption = Annotated[
    Path | None, typer.Option("--markdown", metavar="FILE", help="Write tables that name the hardware here.")
]


class BenchmarkOutput:
    """Where a benchmark's tables and rows go; what could not be written is refused before the measuring."""

    def __init__(self, json_file: Path | None, markdown_file: Path | None) -> None:
        self.rows, self._markdown = JsonFile(json_file), markdown_file
        self.rows.check()
        if markdown_file is not None:
            check_output(markdown_file, "--markdown")

    def open_console(self, missing: Sequence[str]) -> Console:
        """Where tables go; it says which packages are missing."""
        console = Console(stderr=self.rows.is_stdout, highlight=False, width=max(120, Console().width))
        for package in missing:
            console.print(f"without {package}, which is not installed: pip install 'deepex[bench]' brings it in")
        return console

    def write(self, console: Console, rows: str, tables: str) -> None:
        """Rows and tables into the files that were asked for."""
        self.rows.write(rows)
        if self._markdown is not None:
            write_output(self._markdown, "--markdown", tables)
            console.print(f"tables: {self._markdown}")


def choose_names(kind: str, given: list[str] | None, allowed: Iterable[str]) -> list[str]:
    """What was asked for, each once; all if nothing was."""
    known = list(allowed)
    names = list(dict.fromkeys(given or known))
    for name in names:
        if name not in known:
            raise UsageError(unknown(kind, name, known))
    return names


def check_count(option: str, count: int) -> None:
    """Refuse a number of repetitions that is none."""
    if count < 1:
        raise UsageError(f"--{option} {count}. Allowed: whole numbers from 1.")


def repeat_options(name: str, chosen: list[str], allowed: Iterable[str]) -> str:
    """The choice as words of a command; nothing if it is all."""
    return "" if chosen == list(allowed) else "".join(f" --{name} {each}" for each in chosen)


def describe_benchmark(packages: tuple[str, ...], command: str) -> Mapping[str, Any]:
    """The machine, the versions and the command, for the head of a file."""
    hardware, versions = describe_hardware(), describe_versions(packages)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": f"{hardware.processor}, {hardware.instructions}, {hardware.cores} cores",
        "memory": f"{hardware.memory_gib} GiB",
        "system": hardware.system,
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "command": command,
    }
