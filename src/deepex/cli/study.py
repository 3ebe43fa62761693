"""`deepex study`: many runs of one recipe over varied axes, and one page of what they show."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from deepex import api
from deepex.cli.output.files import check_output, write_output
from deepex.cli.run import choose_verbosity
from deepex.errors import UsageError
from deepex.launch.detect import find_world
from deepex.record.sinks.progress import Verbosity
from deepex.report.terminal.study_view import StudyNews, show_study
from deepex.study import Plan, StudyFolder, is_study
from deepex.study.cluster_executor import ClusterPlace, Lines
from deepex.study.executor import LauncherPlace, LocalPlace, Place
from deepex.study.findings import say_estimate
from deepex.study.plan import make_cells, split_strategies
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
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write study.json here too; - is stdout.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors and the page's path.")] = False,
) -> None:
    """Run every combination, judge speed and time to equal quality, and write a page. Its path is the last line.

    Started again, it goes on: what is done is not run twice.
    """
    refuse_ranks()
    to_stdout = json_file is not None and str(json_file) == "-"
    verbosity: Verbosity = "quiet" if quiet or to_stdout else choose_verbosity(quiet)
    if json_file is not None and not to_stdout:
        check_output(json_file, "--json")
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
    with open_place(plan) as place, showing(folder.path, verbosity) as look:
        finished = api.conduct_study(folder, place, retry=retry, look=look)
    _tell(finished, json_file, to_stdout=to_stdout, quiet=quiet)


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
        Lines.parse(plan.where.cluster).check(plan.varied.ranks)
    return plan


def _tell(finished: api.Study, json_file: Path | None, *, to_stdout: bool, quiet: bool) -> None:
    text = json.dumps(finished.outcome, indent=2) + "\n"
    if to_stdout:
        print(text, end="")
    elif json_file is not None:
        write_output(json_file, "--json", text)
    if not to_stdout:
        if not quiet:
            print_study(finished.outcome)
        print(f"page: {finished.page}")
    if finished.outcome["failures"]:
        raise typer.Exit(1)


@contextmanager
def open_place(plan: Plan) -> Iterator[Place]:
    """Where the runs of a plan go, for as long as they need it."""
    where = plan.where
    if where.cluster is not None:
        with Lines.parse(where.cluster).make() as made:
            yield ClusterPlace(made)
    elif where.launcher is not None:
        yield LauncherPlace(where.launcher)
    else:
        yield LocalPlace(where.cores_per_rank or 1)


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


def print_plan(recipe: Recipe, plan: Plan) -> None:
    """The cells of a plan, as a table."""
    cells = make_cells(recipe, plan.varied)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("ranks", "sync", "settings", "batch a rank", "batch of all"):
        table.add_column(column)
    for cell in cells:
        batches = (str(cell.recipe.data.batch), str(cell.batch))
        table.add_row(str(cell.ranks), cell.series or "alone", ", ".join(cell.settings) or "-", *batches)
    console = Console(highlight=False)
    console.print(table)
    goals = " and ".join(f"{cutoff:g}" for cutoff in plan.judged.cutoffs)
    seeds = len(plan.varied.seeds)
    console.print(
        f"{len(cells)} cells × {seeds} seeds, {len(cells) * seeds} runs, judged by {plan.judged.metric} at {goals}"
    )


def print_study(outcome: dict[str, Any]) -> None:
    """The table of a study, and what it found."""
    console = Console(highlight=False, width=max(120, Console().width))
    table = Table(box=None, padding=(0, 2, 0, 0))
    first, last = (f"{cutoff:g}" for cutoff in outcome["cutoffs"])
    for column in ("ranks", "sync", "s an epoch", "S_p", "efficiency", "epochs", f"S_L at {first}", f"S_L at {last}"):
        table.add_column(column, justify="left" if column == "sync" else "right", no_wrap=True)
    for cell in outcome["cells"]:
        name = ", ".join([cell["series"] or "alone", *cell["settings"]])
        if not cell["runs"]:
            table.add_row(str(cell["ranks"]), name, "no finished run")
            continue
        efficiency = cell["efficiency"]
        told = f"{100 * efficiency['value']:.0f} %" if efficiency else "-"
        epochs = [str(number) if number else "not reached" for number in cell["target_epochs"]]
        style = "red" if cell["oversubscribed"] else None
        table.add_row(
            str(cell["ranks"]) + (" (more than cores)" if cell["oversubscribed"] else ""),
            name,
            f"{cell['epoch_seconds']['value']:.3g}",
            say_estimate(cell["speedup"]) if cell["speedup"] else "-",
            told,
            ", ".join(epochs),
            *(_say_speedup(each["speedup"]) for each in cell["cutoffs"]),
            style=style,
        )
    console.print(table)
    for sentence in outcome["findings"]:
        console.print(sentence, soft_wrap=not console.is_terminal, markup=False)
    for name, error in outcome["failures"].items():
        console.print(f"{name} failed: {error}", style="red", soft_wrap=True, markup=False)


def _say_speedup(found: Any) -> str:
    return found if isinstance(found, str) else say_estimate(found)


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
