"""Studies from Python: a recipe over varied axes, and what its runs show together."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from deepex.api.recipes import build_recipe, locate_code
from deepex.errors import Interrupted, UsageError
from deepex.notebook import current_cell, in_notebook
from deepex.record.sinks.progress import Verbosity, choose_verbosity
from deepex.record.study_rows import Scaling, StudyOutcome, read_study
from deepex.report import write_study_report
from deepex.report.notebook.live import showing_study
from deepex.report.notebook.study_card import draw_study
from deepex.study import Plan, StudyFolder, read_outcome
from deepex.study.executor import Executor, LauncherExecutor, LocalExecutor, choose_cores_per_rank
from deepex.study.plan import Varied, Where, fingerprint, judge
from deepex.study.run import open_study, run_cells
from deepex.train.recipe import Recipe
from deepex.train.task import Task


class Study:
    """A study: its directory and what is in it."""

    def __init__(self, folder: StudyFolder, *, shown_in: int | None = None) -> None:
        self.folder = folder
        self.path = folder.path
        self.page = folder.files.page
        self._shown_in = shown_in  # the cell of a notebook whose output has ended as this study

    @property
    def outcome(self) -> StudyOutcome:
        """What it found, as in study.json."""
        return read_study(self.folder.files)

    def __repr__(self) -> str:
        return f"Study({str(self.path)!r})"

    def _repr_html_(self) -> str | None:
        """What a notebook shows of it: what it found so far; nothing in a cell that shows it already."""
        if self._shown_in is not None and self._shown_in == current_cell():
            return None
        return draw_study(read_outcome(self.folder), self.path)


def build_plan(
    recipe: Recipe,
    *,
    ranks: Sequence[int] = (1, 2),
    sync: Sequence[str] | None = None,
    vary: Sequence[str] = (),
    scaling: Sequence[str] = ("weak",),
    repeats: int = 3,
    cutoffs: Sequence[float] = (),
    launcher: str | None = None,
    cluster: str | None = None,
    cores_per_rank: int | None = None,
) -> Plan:
    """What a study of a recipe varies and judges, and where its runs go."""
    if repeats < 1:
        raise UsageError(f"repeats = {repeats}. Allowed: whole numbers from 1; intervals need 2 or more.")
    varied = Varied(
        ranks=tuple(ranks),
        sync=tuple(map(locate_code, sync or (recipe.sync,))),
        scaling=cast(tuple[Scaling, ...], tuple(scaling)),
        settings=tuple(vary),
        seeds=tuple(range(recipe.seed, recipe.seed + repeats)),
    )
    if launcher is None and cluster is None:
        cores_per_rank = choose_cores_per_rank(ranks) if cores_per_rank is None else cores_per_rank
    where = Where(launcher=launcher, cluster=cluster, cores_per_rank=cores_per_rank)
    return Plan(task=fingerprint(recipe.task), varied=varied, judged=judge(recipe, cutoffs), where=where)


def run_study(
    what: str | Path | Task | Recipe,
    *,
    out: str | Path | None = None,
    verbosity: Verbosity | None = None,
    retry: bool = False,
    changes: Mapping[str, Any] | None = None,
    **axes: Any,
) -> Study:
    """Run a recipe over varied axes, and write the study's directory and page. Started again, it goes on.

    Arguments:
        what: as for `run`.
        out: the directory; by default one under studies/ that is the same for the same study.
        verbosity: `notebook`, the default in one, for a table of its runs that is updated; `quiet`; anything else to
            hear of data that is made first.
        retry: whether to run again what failed before.
        changes: what stays fixed, as for `run`: `{"size": "paper"}`.
        axes: `ranks=(1, 2)`, `sync=("allreduce", "local:epoch")`, `vary=("data.batch=32,64",)`, `scaling=("weak",)`,
            `repeats=3`, `cutoffs=(0.2, 0.1)`, `launcher="srun -n {ranks}"`, `cores_per_rank=1`.

    Example: `run_study("protein", ranks=(1, 2), repeats=2).outcome.findings`
    """
    recipe = build_recipe(what, **(changes or {}))
    plan = build_plan(recipe, **axes)
    if plan.where.cluster is not None:
        raise UsageError(
            "a cluster, from Python. Allowed here: this machine, or a launcher. Use deepex study --cluster."
        )
    chosen, launcher = choose_verbosity(verbosity), plan.where.launcher
    folder = open_study(recipe, plan, None if out is None else Path(out), chosen)
    executor = LocalExecutor(plan.where.cores_per_rank or 1) if launcher is None else LauncherExecutor(launcher)
    try:
        with showing_study(folder.path, chosen) as look:
            finish_study(folder, executor, retry=retry, look=look)
    except (Interrupted, KeyboardInterrupt) as stopped:
        if not in_notebook():
            raise
        told = str(stopped) or f"stopped; what is done is kept. Go on with: deepex study {folder.path}"
        raise Interrupted(f"{told}, or here: run the cell again") from None
    return Study(folder, shown_in=current_cell() if chosen == "notebook" else None)


def finish_study(
    folder: StudyFolder, executor: Executor, *, retry: bool = False, look: Callable[[], None] = lambda: None
) -> Study:
    """Run what is left of a study, and write its outcome and page, also when it is stopped on the way."""
    try:
        run_cells(folder, executor, retry=retry, look=look, say=lambda text: print(text, file=sys.stderr, flush=True))
    except Interrupted:
        write_study_report(folder.path, read_outcome(folder))
        raise
    write_study_report(folder.path, read_outcome(folder))
    return Study(folder)
