"""What a study holds fixed, varies and judges: written down as study.toml before its first run.

It knows recipes, and turns a plan into cells, one a combination, and runs, one a seed. It starts nothing.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import product
from math import isfinite
from types import CodeType, FunctionType
from typing import Any, Literal

from deepex.config import merge, override, to_toml
from deepex.errors import ConfigError
from deepex.record.study_rows import Scaling
from deepex.reference import shorten
from deepex.tasks import is_built_in
from deepex.train.recipe import Recipe
from deepex.train.task import Target, Task

EASIER = 0.1  # how far from the target the first cut-off lies, if the task names none


@dataclass(frozen=True, kw_only=True)
class Varied:
    """The axes. `settings` are lines such as `data.batch=32,64`; `seeds` are the repeats."""

    ranks: tuple[int, ...] = (1, 2)
    sync: tuple[str, ...] = ("allreduce",)
    scaling: tuple[Scaling, ...] = ("weak",)
    settings: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        for name in ("ranks", "sync", "scaling", "seeds"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ConfigError(
                    f"varied.{name} = {list(values)}. Allowed: one value or more, each once. Leave the others out."
                )
        if min(self.ranks) < 1:
            raise ConfigError(f"varied.ranks = {list(self.ranks)}. Allowed: whole numbers from 1, as in --ranks 1,2,4.")
        if not set(self.scaling) <= {"weak", "strong"}:
            raise ConfigError(f"varied.scaling = {list(self.scaling)}. Allowed: weak, strong, or the two of them.")
        keys = [line.partition("=")[0] for line in self.settings]
        if len(set(keys)) < len(keys):
            raise ConfigError(f"--vary has a key twice: {', '.join(keys)}. Give all its values at once, as in KEY=A,B.")


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The qualities that count, the easier one first."""

    metric: str = ""
    direction: Literal["min", "max"] = "min"
    cutoffs: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if (
            len(set(self.cutoffs)) not in (0, 2)
            or len(self.cutoffs) not in (0, 2)
            or not all(map(isfinite, self.cutoffs))
        ):
            raise ConfigError(
                f"cut-offs {list(self.cutoffs)}. Allowed: two different values of {self.metric or 'the metric'}, as in "
                "--cutoffs 0.2,0.1."
            )

    def target(self, cutoff: float) -> Target:
        return Target(metric=self.metric, threshold=cutoff, direction=self.direction)


@dataclass(frozen=True, kw_only=True)
class Where:
    """Where runs go: ranks of this machine, a launcher's ranks, or hosts that are made on this machine.

    Attributes:
        launcher: words before the command, with `{ranks}` for their number, such as `srun -n {ranks}`.
        cluster: `hosts=4,mbit=100,rtt_ms=1`.
        cores_per_rank: of this machine, for each rank in every cell, so that more ranks are more cores.
    """

    launcher: str | None = None
    cluster: str | None = None
    cores_per_rank: int | None = None

    def __post_init__(self) -> None:
        if self.launcher is not None and self.cluster is not None:
            raise ConfigError("a launcher and a cluster. Allowed: one of them. Leave --launcher or --cluster out.")
        if self.launcher is not None and not _splits(self.launcher):
            raise ConfigError(f"launcher '{self.launcher}' has a quote that is not closed. Close it, or leave it out.")
        if self.launcher is not None and "{ranks}" not in self.launcher:
            raise ConfigError(
                f"launcher '{self.launcher}' does not say where the number of ranks goes. "
                "Write it as {ranks}, as in --launcher 'srun -n {ranks}'."
            )
        if self.cores_per_rank is not None and self.cores_per_rank < 1:
            raise ConfigError(f"cores_per_rank = {self.cores_per_rank}. Allowed: whole numbers from 1.")


def _splits(launcher: str) -> bool:
    try:
        return bool(shlex.split(launcher))
    except ValueError:
        return False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A study as a value, beside the recipe that it holds fixed (recipe.toml).

    `task` tells one task of a user's own from another of the same name.
    """

    task: str = ""
    varied: Varied = field(default_factory=Varied)
    judged: Judged = field(default_factory=Judged)
    where: Where = field(default_factory=Where)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One combination of what varies; its runs differ by their seeds.

    On one rank every strategy is plain training and both kinds of scaling are the same: `series` is then empty, and
    the cell stands at the beginning of every series with the same settings.
    """

    ranks: int
    sync: str
    scaling: Scaling
    series: str
    settings: tuple[str, ...]
    recipe: Recipe

    @property
    def name(self) -> str:
        """A name for folders."""
        words = (f"{self.ranks}r", self.series or "alone", *self.settings)
        return "_".join(re.sub(r"[^A-Za-z0-9.+]+", "-", word).strip("-") for word in words)

    @property
    def batch(self) -> int:
        """Samples of all ranks in one step."""
        return self.recipe.data.batch * self.ranks

    def words(self) -> list[str]:
        """What `deepex run recipe.toml` needs to be this cell, but for ranks and seed."""
        changed = (f"data.batch={self.recipe.data.batch}",) if self.scaling == "strong" else ()
        return ["--sync", self.sync, *self.settings, *changed]


def judge(recipe: Recipe, cutoffs: Sequence[float] = ()) -> Judged:
    """What a recipe is judged by: the cut-offs given, or its task's, or a tenth easier than the target and the target.

    >>> from deepex.tasks import default_recipe
    >>> judge(default_recipe("protein")).cutoffs
    (0.18095, 0.1645)
    """
    target = recipe.target
    if target.threshold is None:
        if not cutoffs:
            raise ConfigError(
                f"task '{recipe.task.name}' has no target, so there is nothing to judge its runs by. Give one: "
                "stop.target=VALUE, or two cut-offs: --cutoffs A,B."
            )
        ordered = sorted(map(float, cutoffs), reverse=target.direction == "min")
        return Judged(metric=target.metric, direction=target.direction, cutoffs=tuple(ordered))
    threshold = target.threshold
    sign = 1 if target.direction == "min" else -1
    beyond = sorted((cutoff for cutoff in cutoffs if sign * (cutoff - threshold) < 0), key=lambda c: sign * c)
    if beyond and recipe.stop.at_target:
        raise ConfigError(
            f"cut-off {beyond[0]:g}, but runs end at {target.metric} {target}. Allowed: cut-offs that runs pass. Give "
            f"stop.target={beyond[0]:g} too."
        )
    if not cutoffs:
        easier = [cutoff for cutoff in target.cutoffs if sign * (cutoff - threshold) > 0]
        first = easier[0] if easier else threshold + sign * EASIER * abs(threshold)
        cutoffs = (float(f"{first:.6g}"), threshold)
    ordered = sorted(map(float, cutoffs), reverse=target.direction == "min")
    return Judged(metric=target.metric, direction=target.direction, cutoffs=tuple(ordered))


def make_cells(recipe: Recipe, varied: Varied) -> list[Cell]:
    """Every combination, from few ranks to many, each with its recipe checked."""
    cells: dict[str, Cell] = {}
    axes = [split_values(line) for line in varied.settings]
    for settings in product(*axes):
        for ranks, scaling, sync in product(sorted(varied.ranks), varied.scaling, varied.sync):
            cell = _make_cell(recipe, varied, ranks, sync, scaling, settings)
            first = cells.setdefault(cell.name, cell)
            if (first.settings, first.sync) != (settings, cell.sync):
                raise ConfigError(f"two cells have the name {cell.name}. Use values that differ in a letter.")
    return sorted(cells.values(), key=lambda cell: cell.ranks)


def _make_cell(
    recipe: Recipe, varied: Varied, ranks: int, sync: str, scaling: Scaling, settings: tuple[str, ...]
) -> Cell:
    series = ""
    if ranks == 1:
        sync, scaling = varied.sync[0], "weak"
    else:
        series = f"{shorten(sync)} ({scaling})" if len(varied.scaling) > 1 else shorten(sync)
    chosen = override(merge(recipe, {"world": {"ranks": ranks}, "sync": sync}), settings)
    if scaling == "strong":
        batch = chosen.data.batch
        if batch % ranks:
            allowed = ", ".join(str(number) for number in range(1, batch + 1) if batch % number == 0)
            raise ConfigError(
                f"strong scaling shares a batch of {batch} samples among ranks, and {ranks} ranks don't divide it. "
                f"Allowed: {allowed}. Choose among them with --ranks, or another data.batch."
            )
        chosen = merge(chosen, {"data": {"batch": batch // ranks}})
    return Cell(ranks=ranks, sync=sync, scaling=scaling, series=series, settings=settings, recipe=chosen)


def split_values(line: str) -> list[str]:
    """The assignments of a line of values, which a comma separates, or a semicolon where values have commas.

    >>> split_values("data.batch=32,64"), split_values("task.dose=1,2;3,4")
    (['data.batch=32', 'data.batch=64'], ['task.dose=1,2', 'task.dose=3,4'])
    """
    key, equals, text = line.partition("=")
    values = [value.strip() for value in text.split(";" if ";" in text else ",")]
    if not key or not equals or not all(values):
        raise ConfigError(f"--vary '{line}' is not of the form key=a,b,c, as in --vary data.batch=32,64.")
    if key in ("world.ranks", "sync", "seed"):
        option = {"world.ranks": "--ranks", "sync": "--sync", "seed": "--repeats"}[key]
        raise ConfigError(f"--vary {key}: that axis has an option of its own. Use {option}.")
    return [f"{key}={value}" for value in values]


def split_strategies(text: str) -> tuple[str, ...]:
    """Strategies between commas; options of a strategy and what stands in brackets stay with it.

    >>> split_strategies("allreduce,local:16,outer=nesterov,hierarchical(allreduce,local:8)")
    ('allreduce', 'local:16,outer=nesterov', 'hierarchical(allreduce,local:8)')
    """
    strategies: list[str] = []
    for piece in re.split(r",(?![^(]*\))", text):
        if strategies and re.fullmatch(r"[a-z_]+=.*", piece.strip()):
            strategies[-1] += f",{piece.strip()}"
        else:
            strategies.append(piece.strip())
    return tuple(strategies)


def fingerprint(task: Task) -> str:
    """What a user's own task is made of, in a few letters: its data, its network and its functions.

    A task in the table is known by its settings.
    """
    if is_built_in(task):
        return ""
    parts = [task.data().content_sha256, repr(task.model())]
    codes = [value.__code__ for value in vars(task).values() if isinstance(value, FunctionType)]
    parts += [
        f"{code.co_code.hex()}{code.co_names}{[const for const in code.co_consts if not isinstance(const, CodeType)]}"
        for code in codes
    ]
    return sha256("\n".join(parts).encode()).hexdigest()[:16]


def digest(recipe: Recipe, plan: Plan) -> str:
    """A few letters that tell one study from another."""
    return sha256((to_toml(recipe) + to_toml(plan)).encode()).hexdigest()[:8]


def read_plan(tree: Mapping[str, Any]) -> Plan:
    """The plan in a study.toml."""
    return merge(Plan(), tree)
