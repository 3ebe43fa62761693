"""What `deepex study` prints: the cells of a plan, and what the runs of a study found."""

from rich.console import Console
from rich.table import Table

from deepex.record.study_rows import CutoffRow, StudyOutcome
from deepex.study import Plan
from deepex.study.findings import say_estimate
from deepex.study.plan import make_cells
from deepex.train.recipe import Recipe


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


def print_study(outcome: StudyOutcome) -> None:
    """The table of a study, and what it found."""
    console = Console(highlight=False, width=max(120, Console().width))
    table = Table(box=None, padding=(0, 2, 0, 0))
    first, last = (f"{cutoff:g}" for cutoff in outcome.cutoffs)
    for column in ("ranks", "sync", "s an epoch", "S_p", "efficiency", "epochs", f"S_L at {first}", f"S_L at {last}"):
        table.add_column(column, justify="left" if column == "sync" else "right", no_wrap=True)
    for cell in outcome.cells:
        name = ", ".join([cell.series or "alone", *cell.settings])
        if not cell.runs:
            table.add_row(str(cell.ranks), name, "no finished run")
            continue
        seconds, efficiency = cell.epoch_seconds, cell.efficiency
        epochs = [str(number) if number else "not reached" for number in cell.target_epochs]
        style = "red" if cell.oversubscribed else None
        table.add_row(
            str(cell.ranks) + (" (more than cores)" if cell.oversubscribed else ""),
            name,
            f"{seconds.value:.3g}" if seconds else "-",
            say_estimate(cell.speedup) if cell.speedup else "-",
            f"{100 * efficiency.value:.0f} %" if efficiency else "-",
            ", ".join(epochs),
            *(_say_speedup(each) for each in cell.cutoffs),
            style=style,
        )
    console.print(table)
    for sentence in outcome.findings:
        console.print(sentence, soft_wrap=not console.is_terminal, markup=False)
    for name, error in outcome.failures.items():
        console.print(f"{name} failed: {error}", style="red", soft_wrap=True, markup=False)


def _say_speedup(cutoff: CutoffRow) -> str:
    return cutoff.why_no_speedup if cutoff.speedup is None else say_estimate(cutoff.speedup)
