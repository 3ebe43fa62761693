"""`deepex study`: many runs of one recipe over varied axes, and one page of what they show."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live

from deepex import api
from deepex.cli.output.options import JsonFile, JsonOption, QuietOption, choose_verbosity
from deepex.cli.output.study_tables import print_plan, print_study
from deepex.errors import UsageError
from deepex.launch.detect import find_world
from deepex.record.sinks.progress import Verbosity
from deepex.report.terminal.study_view import StudyNews, show_study
from deepex.study import Plan, StudyFolder, is_study
from deepex.study.cluster_executor import ClusterExecutor, ClusterSpec
from deepex.study.executor import Executor, LauncherExecutor, LocalExecutor
from deepex.study.plan import split_strategies
from deepex.study.run import open_study, reopen_study
from deepex.train.recipe import Recipe


def study(
    what: Annotated[
        str, typer.Argument(metavar="TASK|recipe.toml|STUDY", help="A task, a recipe, or a study to go on with.")
    ],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="key=value", help="What stays fixed, as in data.batch=32.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="The task's size, as in small or paper.")] = None,
    ranks: Annotated[str | None, typer.Option(help="Numbers of ranks, as in 1,2,4. [default: 1,2]")] = None,
    sync: Annotated[str | None, typer.Option(help="Strategies, as in allreduce,local:epoch,lagged.")] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=A,B", help="Any key of the recipe and its values (A;B where they have commas)."),
    ] = None,
    scaling: Annotated[
        str | None,
        typer.Option(help="weak: data.batch samples a rank; strong: of all ranks; or both. [default: weak]"),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(help="Runs of each cell, with seeds of their own. [default: 3]")
    ] = None,
    cutoffs: Annotated[
        str | None, typer.Option(metavar="A,B", help="Qualities to judge learning by. [default: the task's]")
    ] = None,
    launcher: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What starts the ranks of a run, as in 'srun -n {ranks}'.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="LINES", help="Hosts to make on this machine, as in hosts=4,mbit=100,rtt_ms=1 (needs root)."
        ),
    ] = None,
    cores_per_rank: Annotated[
        int | None,
        typer.Option(help="Cores of each local rank, in all cells. [default: as many as the most ranks leave]"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The study's directory. [default: one in studies/, the same for the same study]")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Run again what failed before.")] = False,
    only_plan: Annotated[bool, typer.Option("--plan", help="Show the cells, and run nothing.")] = False,
    json_file: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Run every combination, judge speed and time to equal quality, and write a page. Its path is the last line.

    Started again, it goes on: what is done is not run twice.
    """
    refuse_ranks()
    for_programs = JsonFile(json_file)
    for_programs.check()
    verbosity = choose_verbosity(quiet or for_programs.is_stdout)
    axes = {"ranks": ranks, "sync": sync, "vary": vary, "scaling": scaling, "repeats": repeats, "cutoffs": cutoffs}
    axes |= {"launcher": launcher, "cluster": cluster, "cores_per_rank": cores_per_rank}
    if is_study(Path(what)):
        refuse_changes(what, [settings, size, out, *axes.values()])
        if only_plan:
            print_plan(*StudyFolder.open(Path(what)).read())
            return
        folder = reopen_study(Path(what), verbosity)
    else:
        recipe = api.build_recipe(what, size=size, settings=tuple(settings or ()))
        plan = read_axes(recipe, axes)
        if only_plan:
            print_plan(recipe, plan)
            return
        folder = open_study(recipe, plan, out, verbosity)
    _, plan = folder.read()
    with open_executor(plan) as executor, showing(folder.path, verbosity) as look:
        finished = api.finish_study(folder, executor, retry=retry, look=look)
    outcome = finished.outcome
    for_programs.write(json.dumps(outcome.to_plain(), indent=2) + "\n")
    if verbosity != "quiet":
        print_study(outcome)
    if not for_programs.is_stdout:
        print(f"page: {finished.page}")
    if outcome.failures:
        raise typer.Exit(1)


def refuse_ranks() -> None:
    """A study is one process that starts ranks, never a rank."""
    if (launched := find_world()) is not None:
        raise UsageError(
            f"{launched.world.launcher} started {launched.world.size} ranks of deepex study, which starts its own. "
            "Start it once, by hand or in a job's script, with --launcher 'srun -n {ranks}' or the like."
        )


def refuse_changes(what: str, given: Sequence[object]) -> None:
    """The plan of a study that was begun is fixed."""
    if any(each is not None for each in given):
        raise UsageError(
            f"{what} is a study, whose plan is fixed. Allowed with it: --retry, --json, --quiet. Leave out the rest, "
            "or begin another with a task or a recipe."
        )


def read_axes(recipe: Recipe, axes: Mapping[str, Any]) -> Plan:
    """The plan for options as they are written; those that were not given have their defaults."""
    given = {name: value for name, value in axes.items() if value is not None}
    if "ranks" in given:
        given["ranks"] = [_whole(word) for word in given["ranks"].split(",")]
    if "sync" in given:
        given["sync"] = split_strategies(given["sync"])
    if "scaling" in given:
        given["scaling"] = _scaling(given["scaling"])
    if "cutoffs" in given:
        given["cutoffs"] = [_number(word) for word in given["cutoffs"].split(",")]
    plan = api.build_plan(recipe, **given)
    if plan.where.cluster is not None:
        ClusterSpec.parse(plan.where.cluster).check(plan.varied.ranks)
    return plan


@contextmanager
def open_executor(plan: Plan) -> Iterator[Executor]:
    """Where the runs of a plan go, for as long as they need it."""
    where = plan.where
    if where.cluster is not None:
        with ClusterSpec.parse(where.cluster).make() as made:
            yield ClusterExecutor(made)
    elif where.launcher is not None:
        yield LauncherExecutor(where.launcher)
    else:
        yield LocalExecutor(where.cores_per_rank or 1)


@contextmanager
def showing(path: Path, verbosity: Verbosity) -> Iterator[Callable[[], None]]:
    """What to call about once a second: a live table on a terminal, a line for each change elsewhere, or nothing."""
    if verbosity == "quiet":
        yield lambda: None
    elif verbosity == "bar":
        with Live(console=Console(highlight=False), auto_refresh=False) as live:
            yield lambda: live.update(show_study(path), refresh=True)
    else:
        news = StudyNews(path)

        def look() -> None:
            for line in news.hear():
                print(line, flush=True)

        yield look


def _scaling(text: str) -> list[str]:
    words = ["weak", "strong"] if text == "both" else text.split(",")
    if not set(words) <= {"weak", "strong"}:
        raise UsageError(f"--scaling {text}. Allowed: weak, strong or both.")
    return words


def _whole(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise UsageError(f"--ranks has '{word}'. Allowed: whole numbers between commas, as in --ranks 1,2,4.") from None


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise UsageError(f"--cutoffs has '{word}'. Allowed: two numbers, as in --cutoffs 0.2,0.1.") from None
