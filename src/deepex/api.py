"""The Python interface: one call from a task to a finished run with its page."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deepex.config import merge, override
from deepex.launch.recipes import read_recipe
from deepex.launch.start import is_first_rank, resume, start
from deepex.record.folder import RunFolder
from deepex.record.progress import Verbosity
from deepex.report import write_report
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
    def summary(self) -> dict[str, Any]:
        """The outcome, as in summary.json."""
        return self.folder.read_json("summary.json")

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """A row an epoch, as in metrics.jsonl."""
        return self.folder.read_lines("metrics.jsonl")

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"


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
    **changes: Any,
) -> Run:
    """Train, and write the run's directory and page.

    Arguments:
        what: a task's name, the path of a recipe.toml, a task of your own, or a recipe.
        out: the run directory; by default a fresh name under runs/.
        verbosity: `lines`, `bar` or `quiet`.
        changes: `size`, `ranks`, `sync`, `fabric`, `precision`, `stage`, `seed`, `until`, and
            `settings={"data.batch": 32}` for any other key.

    Example: `run("protein", ranks=2, sync="local:epoch").summary["target_reached"]`
    """
    recipe = build_recipe(what, **changes)
    return _finish(start(recipe, None if out is None else Path(out), verbosity))


def resume_run(path: str | Path, *, verbosity: Verbosity = "lines") -> Run:
    """Go on with a run that was stopped early."""
    return _finish(resume(Path(path), verbosity))


def _finish(folder: RunFolder) -> Run:
    if is_first_rank():
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
