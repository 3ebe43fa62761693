"""The `deepex` command: its subcommands in one table, and what happens to their errors."""

import sys

import typer

from deepex.cli import data, report, resume, run, tasks
from deepex.errors import DeepexError, Interrupted
from deepex.launch.start import is_first_rank

app = typer.Typer(
    name="deepex",
    help="Train scientific deep-learning models on supercomputers, and see where the time goes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", epilog="Example:  deepex run protein --ranks 2 --sync local:epoch")(run.run)
app.command("resume", epilog="Example:  deepex resume runs/2026-01-31_120000_protein_allreduce_2r_ab12")(resume.resume)
app.command("tasks", epilog="Example:  deepex tasks")(tasks.tasks)
app.command("report", epilog="Example:  deepex report runs/2026-01-31_120000_protein_allreduce_2r_ab12")(report.report)
app.add_typer(data.app, name="data")


def main() -> None:
    """Run the command; exit codes: 0 done, 1 failed, 2 wrong usage, 75 stopped early but resumable."""
    try:
        app()
    except DeepexError as error:
        if is_first_rank():
            kind = "stopped" if isinstance(error, Interrupted) else "error"
            print(f"deepex: {kind}: {error}", file=sys.stderr, flush=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("deepex: stopped before training began. Start it again.", file=sys.stderr)
        sys.exit(75)
