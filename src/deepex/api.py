"""The Python interface: one call from a task to a finished run with its page."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from deepex.config import merge, override
from deepex.errors import Interrupted, RunFolderError, UsageError
from deepex.launch.recipes import read_recipe
from deepex.launch.start import is_first_rank, resume, start
from deepex.record.folder import RunFolder
from deepex.record.rows import EpochRow, Summary, read_epochs, read_summary
from deepex.record.sinks.progress import Verbosity
from deepex.record.study_rows import Scaling, StudyOutcome, read_study
from deepex.report import write_comparison, write_report, write_study_report
from deepex.study import Plan, StudyFolder, is_study, read_outcome
from deepex.study.executor import Executor, LauncherExecutor, LocalExecutor, choose_cores_per_rank
from deepex.study.plan import Varied, Where, fingerprint, judge
from deepex.study.run import open_study, run_cells
from deepex.tasks import default_recipe
from deepex.train.recipe import Recipe
from deepex.train.task import Task


class Run:
    """A finished run: its directory and what is in it."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.path = folder.path
        self.page = folder.page

    @property
    def summary(self) -> Summary:
        """The outcome, as in summary.json."""
        summary = read_summary(self.folder)
        if summary is None:
            raise RunFolderError(
                f"{self.path} is not complete: it has no summary.json yet. See: deepex watch {self.path}"
            )
        return summary

    @property
    def metrics(self) -> list[EpochRow]:
        """An epoch each, as in metrics.jsonl."""
        return read_epochs(self.folder)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"


class Study:
    """A study: its directory and what is in it."""

    def __init__(self, folder: StudyFolder) -> None:
        self.folder = folder
        self.path = folder.path
        self.page = folder.files.page

    @property
    def outcome(self) -> StudyOutcome:
        """What it found, as in study.json."""
        return read_study(self.folder.files)

    def __repr__(self) -> str:
        return f"Study({str(self.path)!r})"


def build_recipe(
    what: str | Path | Task | Recipe,
    *,
    size: str | None = None,
    ranks: int | None = None,
    sync: str | None = None,
    fabric: str | None = None,
    precision: str | None = None,
    stage: str | None = None,
    seed: int | None = None,
    until: float | None = None,
    settings: tuple[str, ...] | Mapping[str, Any] = (),
) -> Recipe:
    """The recipe of a task's name, a recipe.toml, a task of your own or a recipe, with the given changes.

    >>> build_recipe("protein", ranks=2, settings={"data.batch": 32}).data.batch
    32
    """
    if isinstance(what, Recipe):
        recipe = what
    elif isinstance(what, str | Path):
        recipe = read_recipe(Path(what)) if str(what).endswith(".toml") else default_recipe(str(what), size)
    else:
        recipe = Recipe(task=what)
    if isinstance(settings, Mapping):
        settings = tuple(f"{key}={value}" for key, value in settings.items())
    chosen = {
        "task": {"size": size},
        "world": {"ranks": ranks, "fabric": fabric},
        "data": {"stage": stage},
        "stop": {"target": until, "at_target": None if until is None else True},
        "sync": sync,
        "precision": precision,
        "seed": seed,
    }
    return override(merge(recipe, _given(chosen)), settings)


def run(
    what: str | Path | Task | Recipe,
    *,
    out: str | Path | None = None,
    verbosity: Verbosity = "lines",
    page: bool = True,
    **changes: Any,
) -> Run:
    """Train, and write the run's directory and page.

    Arguments:
        what: a task's name, the path of a recipe.toml, a task of your own, or a recipe.
        out: the run directory; by default a fresh name under runs/.
        verbosity: `lines`, `bar` or `quiet`.
        page: whether to write the page; `deepex report RUN` writes it later.
        changes: `size`, `ranks`, `sync`, `fabric`, `precision`, `stage`, `seed`, `until`, and
            `settings={"data.batch": 32}` for any other key.

    Example: `run("protein", ranks=2, sync="local:epoch").summary.target_reached`
    """
    recipe = build_recipe(what, **changes)
    return _finish(start(recipe, None if out is None else Path(out), verbosity), page)


def resume_run(path: str | Path, *, verbosity: Verbosity = "lines", page: bool = True) -> Run:
    """Go on with a run that was stopped early."""
    return _finish(resume(Path(path), verbosity), page)


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
        sync=tuple(sync or (recipe.sync,)),
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
    verbosity: Verbosity = "lines",
    retry: bool = False,
    changes: Mapping[str, Any] | None = None,
    **axes: Any,
) -> Study:
    """Run a recipe over varied axes, and write the study's directory and page. Started again, it goes on.

    Arguments:
        what: as for `run`.
        out: the directory; by default one under studies/ that is the same for the same study.
        verbosity: `quiet`, or anything else to hear of data that is made first.
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
    folder = open_study(recipe, plan, None if out is None else Path(out), verbosity)
    launcher = plan.where.launcher
    executor = LocalExecutor(plan.where.cores_per_rank or 1) if launcher is None else LauncherExecutor(launcher)
    return finish_study(folder, executor, retry=retry)


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


def report(path: str | Path, out: str | Path | None = None) -> Path:
    """Write the page of a run or of a study anew, finished or not; returns its path.

    Arguments:
        path: the directory of the run or study, of which no file but the page and its figures changes.
        out: another place for the page; then nothing there changes.
    """
    path = Path(path)
    if not is_study(path):
        return write_report(RunFolder.open(path), None if out is None else Path(out))
    if out is not None:
        return compare([path], out)
    return write_study_report(path, read_outcome(StudyFolder.open(path)))


def compare(paths: Sequence[str | Path], out: str | Path) -> Path:
    """Write one page of several studies of a task; what they differ in, machines and commits too, it says."""
    return write_comparison([read_outcome(StudyFolder.open(Path(path))) for path in paths], Path(out))


def _finish(folder: RunFolder, page: bool) -> Run:
    if page and is_first_rank():
        write_report(folder)
    return Run(folder)


def _given(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a nested mapping that are not None."""
    kept: dict[str, Any] = {}
    for key, value in tree.items():
        inner = _given(value) if isinstance(value, Mapping) else value
        if inner is not None and inner != {}:
            kept[key] = inner
    return kept
