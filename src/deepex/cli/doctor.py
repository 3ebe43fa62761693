"""`deepex doctor`: look at the machine."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from deepex.cli.output.files import check_output, write_output
from deepex.cli.output.options import JsonFile, JsonOption
from deepex.doctor.examine import examine
from deepex.doctor.table import print_machine
from deepex.errors import UsageError
from deepex.launch.detect import refuse_ranks


def doctor(
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file to write, or to replace.")] = Path("machine.toml"),
    data: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder with data, to measure how fast it is.")
    ] = Path(),
    json_file: JsonOption = None,
) -> None:
    """Measure this machine, in about half a minute: cores, memory, matrix products, all-reduce, disks; and warn."""
    refuse_ranks("deepex doctor")
    for_programs = JsonFile(json_file)
    _check_folder(data)
    check_output(out, "--out")
    for_programs.check()
    if json_file is not None and json_file.absolute() == out.absolute():
        raise UsageError(f"--out and --json are the same file, {out}. Give each a name of its own.")
    machine = examine(data, _say)
    _say("")
    if not for_programs.is_stdout:
        print_machine(machine)
    write_output(out, "--out", machine.to_toml())
    for_programs.write(machine.to_json())
    if not for_programs.is_stdout:
        print(f"machine: {out}")


def _check_folder(data: Path) -> None:
    """Refuse a folder that can't be measured, before half a minute of measuring."""
    try:
        next(data.iterdir(), None)
    except OSError as error:
        raise UsageError(
            f"--data {data} can't be read: {error.strerror}. Allowed: a folder that exists. "
            "Give the one that holds your data."
        ) from error


def _say(text: str) -> None:
    """What is being measured: one line that changes on a terminal, a line each elsewhere. stdout stays for results."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)
