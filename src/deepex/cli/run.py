"""`deepex run`: train a task or a recipe."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from deepex import api
from deepex.cli.output.files import check_output, write_output
from deepex.cli.output.outcome import print_outcome
from deepex.launch.start import is_first_rank
from deepex.record.sinks.progress import Verbosity


def run(
    what: Annotated[str, typer.Argument(metavar="TASK|recipe.toml", help="A task (see deepex tasks), or a recipe.")],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="key=value", help="Any key of the recipe, as in data.batch=32.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="The task's size, as in small or paper.")] = None,
    ranks: Annotated[int | None, typer.Option(help="Ranks to start on this machine. [default: 1]")] = None,
    sync: Annotated[
        str | None,
        typer.Option(
            help="allreduce, local:H, local:epoch, background:H, lagged, hierarchical(INNER,OUTER), hybrid:G, async or "
            "auto; compressed with +bf16, +fp16, +topk:F or +powersgd:R. [default: allreduce]"
        ),
    ] = None,
    fabric: Annotated[
        str | None, typer.Option(help="What ranks talk by: torch, mpi, shared. [default: auto, the fastest here]")
    ] = None,
    precision: Annotated[str | None, typer.Option(help="fp32, bf16 or fp16. [default: fp32]")] = None,
    stage: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Copy the data to this folder of each node first, or reuse it.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of weights, order and noise. [default: 0]")] = None,
    until: Annotated[float | None, typer.Option(help="Stop at this value of the metric. [default: the task's]")] = None,
    out: Annotated[Path | None, typer.Option(help="The run directory. [default: a new one in runs/]")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the summary here; - is stdout.")
    ] = None,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Write the page; deepex report does it later.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors and the page's path.")] = False,
) -> None:
    """Train, record everything, and write a page. The page's path is the last line."""
    recipe = api.build_recipe(
        what,
        size=size,
        ranks=ranks,
        sync=sync,
        fabric=fabric,
        precision=precision,
        stage=None if stage is None else str(stage),
        seed=seed,
        until=until,
        settings=tuple(settings or ()),
    )
    to_stdout = json_file is not None and str(json_file) == "-"
    if json_file is not None and not to_stdout and is_first_rank():
        check_output(json_file, "--json")
    finished = api.run(recipe, out=out, verbosity="quiet" if to_stdout else choose_verbosity(quiet), page=page)
    if not is_first_rank():
        return
    if to_stdout:
        print(json.dumps(finished.summary, indent=2))
        return
    if json_file is not None:
        write_output(json_file, "--json", json.dumps(finished.summary, indent=2) + "\n")
    print_outcome(finished, quiet)


def choose_verbosity(quiet: bool) -> Verbosity:
    """A bar on a terminal, plain lines elsewhere."""
    if quiet:
        return "quiet"
    return "bar" if sys.stdout.isatty() else "lines"
