"""Starting and resuming runs: the same call alone, with local ranks, or inside a world that a launcher made."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from deepex.config import to_tree
from deepex.data import Splits
from deepex.errors import ConfigError, RunFolderError, UsageError
from deepex.fabric import Fabric, from_first
from deepex.launch.data import make_missing_data
from deepex.launch.detect import find_world
from deepex.launch.launchers.launcher import Launched
from deepex.launch.local import start_local_ranks
from deepex.launch.rank import run_rank
from deepex.launch.recipes import name_code, pack_recipe, read_recipe
from deepex.record.folder import RunFolder, new_run_name
from deepex.record.provenance import gather_record, write_record
from deepex.record.sinks.progress import Verbosity
from deepex.train import checkpoint
from deepex.train.input import describe_data, open_data
from deepex.train.recipe import Recipe

RUNS = Path("runs")
TellFolder = Callable[[RunFolder], object]
"""Told of a run's directory as soon as it is there, in the process that speaks for the run."""


def is_first_rank() -> bool:
    """Whether this process speaks for its run: any that was started by hand, and rank 0 under a launcher."""
    launched = find_world()
    return launched is None or launched.world.is_first


def start(
    recipe: Recipe, out: Path | None, verbosity: Verbosity, tell_folder: TellFolder = lambda folder: None
) -> RunFolder:
    """Run a recipe into a new directory: `out`, or a fresh name under runs/."""
    launched, recipe = find_world(), name_code(recipe)
    if launched is not None:
        recipe = _fit_world(recipe, launched)
    elif recipe.world.fabric == "mpi" and recipe.world.ranks > 1:
        raise UsageError(
            f"--ranks {recipe.world.ranks} --fabric mpi: MPI's own launcher starts its ranks. "
            f"Write: mpirun -n {recipe.world.ranks} deepex run … --fabric mpi"
        )
    make_missing_data(recipe.task, launched, verbosity)
    files: dict[str, bytes] = {}
    if is_first_rank():  # before data is opened: a data set may keep an open file from then on
        is_alone = launched is None and recipe.world.ranks == 1
        files = pack_recipe(recipe, partial(_tell_unfit, verbosity) if is_alone else None)
    path = out or RUNS / new_run_name(recipe.task.name, recipe.sync, recipe.world.ranks)
    if launched is None and recipe.world.ranks > 1:
        folder = _create(path, recipe, files, open_data(recipe))  # each rank opens it for itself
        tell_folder(folder)
        start_local_ranks(folder, recipe.world.ranks, verbosity)
        return folder

    def agree_on_folder(fabric: Fabric, splits: Splits) -> RunFolder:
        folder = from_first(fabric, lambda: _create(path, recipe, files, splits))
        if fabric.world.is_first:
            tell_folder(folder)
        return folder

    return run_rank(recipe, launched, agree_on_folder, verbosity)


def resume(path: Path, verbosity: Verbosity, tell_folder: TellFolder = lambda folder: None) -> RunFolder:
    """Go on with a run that stopped early, from its checkpoint."""
    folder = RunFolder.open(path)
    if (path / "summary.json").exists():
        raise RunFolderError(f"{path} is complete; there is nothing to go on with. See it with: deepex report {path}")
    if checkpoint.latest(folder) is None:
        raise RunFolderError(f"{path} has no checkpoint. Start it again with: deepex run {folder.recipe}")
    recipe, launched = read_recipe(folder.recipe), find_world()
    if is_first_rank():
        tell_folder(folder)
    if launched is None and recipe.world.ranks > 1:
        start_local_ranks(folder, recipe.world.ranks, verbosity)
        return folder
    return run_rank(recipe, launched, lambda *_: folder, verbosity)


def _fit_world(recipe: Recipe, launched: Launched) -> Recipe:
    """The recipe with the launcher's number of ranks; one that asks for another number is refused."""
    size = launched.world.size
    if recipe.world.ranks not in (1, size):
        raise UsageError(
            f"--ranks {recipe.world.ranks}, but {launched.world.launcher} started {size}. Leave --ranks out there."
        )
    return replace(recipe, world=replace(recipe.world, ranks=size))


def _tell_unfit(verbosity: Verbosity, error: ConfigError) -> None:
    """What a run of this process alone does without."""
    if verbosity != "quiet":
        print(f"deepex: this run can't be resumed, and dx.load needs model=: {error}", file=sys.stderr, flush=True)


def _create(path: Path, recipe: Recipe, files: dict[str, bytes], splits: Splits) -> RunFolder:
    """A new run directory with all that is known before the first step; `files` are let go, they may hold data."""
    folder = RunFolder.create(path)
    for name in list(files):
        folder.write_bytes(name, files.pop(name))
    write_record(folder, gather_record(seed=recipe.seed, recipe=to_tree(recipe), **describe_data(splits)))
    return folder
