"""The outcome of a run on the terminal: a short table, what bounds it, and the page's path last."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from deepex.api import Run
from deepex.record.phases import STEP_PHASES
from deepex.record.rows import Diagnosis
from deepex.text import say_percent, say_plural


def print_outcome(run: Run, quiet: bool) -> None:
    """Print what a run found and where its time went; with `quiet` only where the page is."""
    if not quiet:
        console = Console(highlight=False, soft_wrap=True)
        console.print(_outcome(run))
        console.print(_phases(run))
        _print_diagnosis(console, run.summary.diagnosis)
    print(f"page: {run.page}" if run.page.exists() else f"run: {run.path}")


def _outcome(run: Run) -> Table:
    summary = run.summary
    verdict = "not reached: give it more stop.epochs"
    if summary.epochs_to_target is not None:
        verdict = f"reached after {say_plural(summary.epochs_to_target, 'epoch')}"
    goal = {} if summary.target is None else {"target": f"{summary.target:g}, {verdict}"}
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    rows = {
        summary.metric: f"{summary.value:.4f}",
        **goal,
        "time": f"{summary.seconds:.1f} s in {say_plural(summary.epochs, 'epoch')}",
        "speed": f"{summary.samples_per_second:,.0f} samples/s, {summary.gflops_per_second:.1f} GFLOP/s, "
        f"{say_percent(summary.share_of_peak)} of the {summary.precision} GEMM peak",
        **{name.replace("_", " "): f"{value:.3f}" for name, value in summary.findings.items()},
    }
    for name, text in rows.items():
        table.add_row(name, text)
    return table


def _phases(run: Run) -> Table:
    summary = run.summary
    wall = summary.step_wall_seconds
    table = Table(box=None, title="where the time went (mean over ranks)", title_justify="left", padding=(0, 2, 0, 0))
    for column in (*STEP_PHASES, "sum", "wall"):
        table.add_column(column, justify="right")
    seconds = [summary.phase_seconds[name] for name in STEP_PHASES]
    columns = [*seconds, sum(seconds), wall]
    table.add_row(*(f"{value:.2f} s" for value in columns))
    table.add_row(*(say_percent(value / wall, 1) for value in columns))
    return table


def _print_diagnosis(console: Console, found: Diagnosis | None) -> None:
    """The verdict, the numbers behind it, and what would help; in whole lines where no terminal wraps them."""
    if found is None:
        return
    lines = ["", found.verdict, *(f"  - {sentence}" for sentence in found.evidence)]
    if found.advice:
        lines.append("What would help most:")
        lines += [f"  {advice.change}\n    {advice.sentence}" for advice in found.advice]
    for line in lines:
        console.print(Text(line), soft_wrap=not console.is_terminal)
