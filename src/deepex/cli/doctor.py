"""`deepex doctor`: look at the machine."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from deepex.cli.output.files import check_output, write_output
from deepex.doctor.examine import examine
from deepex.doctor.table import print_machine
from deepex.errors import UsageError
from deepex.launch.detect import detect


def doctor(
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file to write, or to replace.")] = Path("machine.toml"),
    data: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder with data, to measure how fast it is.")
    ] = Path(),
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the same for programs; - is stdout.")
    ] = None,
) -> None:
    """Measure this machine, in about half a minute: cores, memory, matrix products, all-reduce, disks; and warn."""
    _check(out, data, json_file)
    machine = examine(data, _say)
    _say("")
    to_stdout = json_file is not None and str(json_file) == "-"
    if to_stdout:
        print(machine.to_json(), end="")
    else:
        print_machine(machine)
    write_output(out, "--out", machine.to_toml())
    if json_file is not None and not to_stdout:
        write_output(json_file, "--json", machine.to_json())
    if not to_stdout:
        print(f"machine: {out}")


def _check(out: Path, data: Path, json_file: Path | None) -> None:
    """Refuse what would fail later, before half a minute of measuring."""
    launched = detect(os.environ)
    if launched is not None and launched.world.size > 1:
        raise UsageError(
            f"{launched.world.launcher} started {launched.world.size} ranks, and deepex doctor measures one machine "
            "from one process. Start it by hand, or as one rank."
        )
    try:
        next(data.iterdir(), None)
    except OSError as error:
        raise UsageError(
            f"--data {data} can't be read: {error.strerror}. Allowed: a folder that exists. "
            "Give the one that holds your data."
        ) from error
    check_output(out, "--out")
    if json_file is not None and str(json_file) != "-":
        check_output(json_file, "--json")
        if json_file.absolute() == out.absolute():
            raise UsageError(f"--out and --json are the same file, {out}. Give each a name of its own.")


def _say(text: str) -> None:
    """What is being measured: one line that changes on a terminal, a line each elsewhere. stdout stays for results."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)
