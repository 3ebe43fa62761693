"""Beginning a run around a user's own loop: its ranks, its process, its directory."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from deepex.config import to_toml, to_tree
from deepex.errors import RunFolderError, UsageError
from deepex.fabric import Fabric, FabricName, from_first
from deepex.launch.detect import find_world
from deepex.launch.rank import count_threads, join, set_up_process, share_cores
from deepex.launch.start import RUNS
from deepex.notebook import in_notebook
from deepex.own_loop.loop_task import LoopTask
from deepex.own_loop.session import Session, opened, refuse_second
from deepex.record.folder import RunFolder, new_run_name
from deepex.record.provenance import Placement, gather_record, read_record, write_record
from deepex.record.rows import SUMMARY_FILE
from deepex.record.sinks.progress import Verbosity
from deepex.train import checkpoint
from deepex.train.checkpoint import Position
from deepex.train.compute.precision import Precision
from deepex.train.recipe import Recipe, WorldConfig

PACKAGE = Path(__file__).parents[1]
NO_SCRIPT = "loop.py"  # what a record calls code that no file has


@dataclass(frozen=True, kw_only=True)
class LoopConfig:
    """What a run around a user's own loop is told; `dx.start` says what each means."""

    name: str | None = None
    out: Path | None = None
    resume: Path | None = None
    fabric: FabricName = "auto"
    precision: Precision = "fp32"
    seed: int = 0
    keep_heap: bool = True
    checkpoint_epochs: int = 1
    timeout_seconds: float = 300.0
    verbosity: Verbosity = "lines"

    def __post_init__(self) -> None:
        if self.out is not None and self.resume is not None:
            raise UsageError(
                f"out={self.out} and resume={self.resume}. Allowed: one of them; a resumed run stays where it is."
            )


@contextmanager
def run_loop(config: LoopConfig) -> Iterator[Session]:
    """The session of a loop, on this rank."""
    refuse_second()
    launched, script = find_world(), _find_script()
    recipe = Recipe(
        task=LoopTask(name=config.name or (script.stem if script else "loop")),
        world=WorldConfig(
            ranks=launched.world.size if launched else 1, fabric=config.fabric, timeout_seconds=config.timeout_seconds
        ),
        precision=config.precision,
        seed=config.seed,
        keep_heap=config.keep_heap,
        checkpoint_epochs=config.checkpoint_epochs,
        code=str(script or NO_SCRIPT),
    )
    threads = torch.get_num_threads()
    try:
        with (
            join(launched, config.timeout_seconds, config.fabric) as fabric,
            opened(_open_session(config, recipe, fabric)) as session,
        ):
            yield session
    finally:
        torch.set_num_threads(threads)  # a small step is left to one


def _find_script() -> Path | None:
    """The user's script that runs; None for a notebook, and for a function that deepex started."""
    if in_notebook():  # whose kernel is a script too
        return None
    path = Path(sys.argv[0]).resolve()
    is_own = path.is_relative_to(PACKAGE)
    return path if path.suffix == ".py" and path.is_file() and not is_own else None


def _open_session(config: LoopConfig, recipe: Recipe, fabric: Fabric) -> Session:
    """The session of this rank, with its directory made or found."""
    out, resume = config.out, config.resume
    cores = share_cores(fabric)
    process = set_up_process(recipe, count_threads(cores))
    name = new_run_name(recipe.task.name, "loop", recipe.world.ranks)
    path = out or RUNS / name
    folder = from_first(fabric, lambda: _create(path, recipe) if resume is None else _reopen(resume))
    world = fabric.world
    places = fabric.gather(Placement(rank=world.rank, host=world.host, cores=float(cores), **process))
    if world.is_first:
        record = read_record(folder)
        write_record(folder, replace(record, launcher=world.launcher, fabric=fabric.name, places=tuple(places)))
    session = Session(recipe, fabric, folder, config.verbosity)
    torch.manual_seed(recipe.seed)  # models that are made from here on begin alike on all ranks
    if resume is not None:
        newest = checkpoint.latest(folder)
        assert newest is not None, "looked for when the directory was opened"
        session.resumed = checkpoint.load(newest, world)
        session.position = Position(**session.resumed["position"])
        torch.set_num_threads(session.position.threads or torch.get_num_threads())
    return session


def _create(path: Path, recipe: Recipe) -> RunFolder:
    folder = RunFolder.create(path)
    folder.write_text("recipe.toml", to_toml(recipe))
    write_record(folder, gather_record(seed=recipe.seed, recipe=to_tree(recipe), data_sha256=None, data_left_out={}))
    return folder


def _reopen(path: Path) -> RunFolder:
    folder = RunFolder.open(path)
    if (path / SUMMARY_FILE).exists():
        raise RunFolderError(f"{path} is complete; there is nothing to go on with. Leave resume= out for a new run.")
    if checkpoint.latest(folder) is None:
        raise RunFolderError(f"{path} has no checkpoint. Leave resume= out, and start it again.")
    return folder
