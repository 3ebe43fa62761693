"""The `deepex` command: its subcommands in one table, and what happens to their errors."""

import sys

import typer

from deepex.cli import bench, cluster, data, doctor, export, report, resume, run, study, tasks, watch
from deepex.errors import DeepexError, PeerError, TrainingError
from deepex.launch.rank import leave
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
app.command("watch", epilog="Example:  deepex watch runs/2026-01-31_120000_protein_allreduce_2r_ab12")(watch.watch)
app.command("tasks", epilog="Example:  deepex tasks")(tasks.tasks)
app.command("report", epilog="Example:  deepex report runs/2026-01-31_120000_protein_allreduce_2r_ab12")(report.report)
app.command("study", epilog="Example:  deepex study protein --ranks 1,2 --sync allreduce,local:epoch --repeats 2")(
    study.study
)
app.command(
    "export", epilog="Example:  deepex export runs/2026-01-31_120000_protein_allreduce_2r_ab12 weights.safetensors"
)(export.export)
app.command("doctor", epilog="Example:  deepex doctor")(doctor.doctor)
app.command(
    "cluster", epilog="Example:  deepex cluster --hosts 2 -- deepex run protein --sync local:epoch stop.epochs=2"
)(cluster.cluster)
app.add_typer(data.app, name="data")
app.add_typer(bench.app, name="bench")


def main() -> None:
    """The program: run the command of this process and end with its exit code."""
    leave(run_command(sys.argv[1:]))


def run_command(words: list[str]) -> int:
    """Run a command and return its exit code: 0 done, 1 failed, 2 wrong usage, 75 stopped early but resumable."""
    try:
        app(words)
    except SystemExit as end:  # typer ends every command so, and wrong usage with 2
        return end.code if isinstance(end.code, int) else 0
    except DeepexError as error:
        if _tells(error):
            print(f"{error.heading}{error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


def _tells(error: DeepexError) -> bool:
    """Whether this rank prints it: what all ranks meet alike is told once, a rank's own trouble by that rank."""
    if isinstance(error, PeerError):
        return error.tells
    return is_first_rank() or isinstance(error, TrainingError)
