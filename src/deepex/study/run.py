"""From a plan to its outcome: check every cell, run what is left, judge, and write study.json."""

from collections.abc import Callable
from pathlib import Path

from deepex.data import Splits
from deepex.launch.data import make_missing_data
from deepex.record.sinks.progress import Verbosity
from deepex.record.study_rows import StudyOutcome, write_study
from deepex.study.executor import Executor
from deepex.study.folder import StudyFolder
from deepex.study.outcome import read_outcome
from deepex.study.plan import Plan, digest, make_cells
from deepex.study.sweep import Sweep, plan_runs
from deepex.train.input import check_data
from deepex.train.recipe import Recipe

STUDIES = Path("studies")


def open_study(recipe: Recipe, plan: Plan, out: Path | None, verbosity: Verbosity) -> StudyFolder:
    """The directory of a study, once every cell has been found to hold together.

    Without `out` its name follows from what is studied: the same command goes on with the same study.
    """
    _check(recipe, plan, verbosity)
    return StudyFolder.prepare(out or STUDIES / f"{recipe.task.name}_{digest(recipe, plan)}", recipe, plan)


def reopen_study(path: Path, verbosity: Verbosity) -> StudyFolder:
    """The directory of a study to go on with, once its cells have been found to hold together still."""
    folder = StudyFolder.open(path)
    _check(*folder.read(), verbosity)
    return folder


def _check(recipe: Recipe, plan: Plan, verbosity: Verbosity) -> None:
    """Find what would fail in some cell, before the first is run."""
    cells = make_cells(recipe, plan.varied)
    make_missing_data(recipe.task, None, verbosity)
    opened: dict[int, Splits] = {}  # by task: most studies vary none of its settings
    for cell in cells:
        task = cell.recipe.task
        if id(task) not in opened:
            opened[id(task)] = task.data()
        check_data(cell.recipe, opened[id(task)])


def run_cells(
    folder: StudyFolder, executor: Executor, *, retry: bool, look: Callable[[], None], say: Callable[[str], None]
) -> StudyOutcome:
    """Run what is left of a study, and write and return its outcome.

    Arguments:
        folder: from `open_study`.
        executor: where runs go.
        retry: whether runs that failed before are tried again.
        look: called about once a second while runs go on.
        say: for a line to people.
    """
    recipe, plan = folder.read()
    with folder.held(say) as lock:
        runs = plan_runs(folder, make_cells(recipe, plan.varied), plan.varied.seeds, retry=retry)
        for run in runs:
            if run.state != "done":
                run.oversubscribed = not executor.fits(run.cell.ranks)
        try:
            Sweep(folder, runs, executor, look).run(lock)
        finally:
            outcome = read_outcome(folder)
            write_study(folder.files, outcome)
    return outcome
