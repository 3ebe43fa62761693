"""`deepex run`: train a task or a recipe."""

import json
from pathlib import Path
from typing import Annotated

import typer

from deepex import api
from deepex import sync as strategies
from deepex.cli.output.options import JsonFile, JsonOption, PageOption, QuietOption, choose_verbosity
from deepex.cli.output.outcome import print_outcome
from deepex.launch.start import is_first_rank
from deepex.record.typed_json import to_json


def run(
    what: Annotated[str, typer.Argument(metavar="TASK|recipe.toml", help="A task (see deepex tasks), or a recipe.")],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="key=value", help="Any key of the recipe, as in data.batch=32.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="The task's size, as in small or paper.")] = None,
    ranks: Annotated[int | None, typer.Option(help="Ranks to start on this machine. [default: 1]")] = None,
    sync: Annotated[str | None, typer.Option(help=f"{strategies.say_forms()}. [default: {strategies.DEFAULT}]")] = None,
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
    json_file: JsonOption = None,
    page: PageOption = True,
    quiet: QuietOption = False,
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
    for_programs = JsonFile(json_file)
    if is_first_rank():
        for_programs.check()
    finished = api.run(recipe, out=out, verbosity=choose_verbosity(quiet or for_programs.is_stdout), page=page)
    if not is_first_rank():
        return
    for_programs.write(json.dumps(to_json(finished.summary), indent=2) + "\n")
    if not for_programs.is_stdout:
        print_outcome(finished, quiet)
