"""One rank from start to end: fabric, threads, loop."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from fractions import Fraction
from typing import Any, NoReturn

import torch
from torch.utils import deterministic

from deepex.config import to_toml
from deepex.data import Splits
from deepex.errors import ConfigError
from deepex.fabric import Fabric, FabricName, Rendezvous, SoloFabric, open_fabric, together
from deepex.fabric.mpi.thread import finish
from deepex.kernels import install_convolution, install_half_precision
from deepex.launch.heap import keep_heap
from deepex.launch.launchers.launcher import Launched
from deepex.record.folder import RunFolder
from deepex.record.provenance import Placement, describe_versions, read_record, write_record
from deepex.record.sinks.progress import Listener, ProgressFile, Silent, Verbosity, build_listener
from deepex.train.input import open_data
from deepex.train.loop import Loop
from deepex.train.recipe import Recipe
from deepex.world import World

OpenFolder = Callable[[Fabric, Splits], RunFolder]
"""Makes or finds the run directory, once ranks can talk and their data is open."""


def run_rank(recipe: Recipe, launched: Launched | None, open_folder: OpenFolder, verbosity: Verbosity) -> RunFolder:
    """Train as one rank of a world, or alone; the task's data is opened here, once."""
    with join(launched, recipe.world.timeout_seconds, recipe.world.fabric) as fabric:
        return _train(recipe, fabric, open_folder, verbosity)


@contextmanager
def join(launched: Launched | None, timeout_seconds: float, fabric: FabricName = "auto") -> Iterator[Fabric]:
    """How this process talks to its peers: as a launcher's rank, or alone, in a process that may go on afterwards."""
    if launched is None:
        with _process_put_back():
            yield SoloFabric(World())
        return
    rendezvous = Rendezvous(
        launched.world, address=launched.address, agent_store=launched.agent_store, timeout_seconds=timeout_seconds
    )
    with open_fabric(fabric, rendezvous) as opened:
        yield opened


def _train(recipe: Recipe, fabric: Fabric, open_folder: OpenFolder, verbosity: Verbosity) -> RunFolder:
    _compare(recipe, fabric)
    cores = share_cores(fabric)
    process = set_up_process(recipe, count_threads(cores))
    splits = together(fabric, lambda: open_data(recipe))
    folder = open_folder(fabric, splits)
    world = fabric.world
    places = fabric.gather(Placement(rank=world.rank, host=world.host, cores=float(cores), **process))
    listener: Listener = Silent()
    if world.is_first:
        record = read_record(folder)
        write_record(folder, replace(record, launcher=world.launcher, fabric=fabric.name, places=tuple(places)))
        told = build_listener(verbosity, recipe.stop.epochs, str(recipe.target))
        listener = ProgressFile(told, folder, recipe.stop.epochs, asdict(recipe.target))
    try:
        with torch.inference_mode(False), torch.enable_grad():  # whatever holds where the run is started
            Loop(recipe, splits, fabric, folder, listener).run()
    finally:
        listener.close()
    return folder


def set_up_process(recipe: Recipe, threads: int) -> dict[str, Any]:
    """What a run sets for its whole process, before its first tensor; what was set, for the record."""
    done = {
        "threads": threads,
        "heap_kept": recipe.keep_heap and keep_heap(),
        "own_convolution": install_convolution(),
        "own_half_precision": recipe.precision != "fp32" and install_half_precision(),
    }
    torch.set_num_threads(threads)
    # The same as use_deterministic_algorithms, which also imports the compiler: seconds of every rank.
    torch.set_deterministic_debug_mode("warn")
    deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # a property that torch hides; it costs time
    return done


@contextmanager
def _process_put_back() -> Iterator[None]:
    """What torch is told for a run is afterwards as it was before: a notebook computes on, with all its threads."""
    threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    fills = deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]  # as above
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_deterministic_debug_mode(mode)
        deterministic.fill_uninitialized_memory = fills  # type: ignore[attr-defined]  # as above


def leave(exit_code: int) -> NoReturn:
    """End a rank's process without the interpreter's clean-up, where a thread of Gloo may abort it (docs/log.md)."""
    sys.stdout.flush()
    sys.stderr.flush()
    finish()  # mpiexec kills all ranks when one ends without leaving MPI
    os._exit(exit_code)


def share_cores(fabric: Fabric) -> Fraction:
    """Cores for this rank: each that it may use, divided among the ranks of this host that may use it too."""
    mine = os.sched_getaffinity(0)
    peers = fabric.gather((fabric.world.host, mine))
    here = [cores for host, cores in peers if host == fabric.world.host]
    return sum((Fraction(1, sum(core in cores for cores in here)) for core in mine), start=Fraction(0))


def count_threads(cores: Fraction) -> int:
    """Threads for a share of cores: whole ones, and one where ranks share a core."""
    return max(1, int(cores))


def _compare(recipe: Recipe, fabric: Fabric) -> None:
    """Refuse to train where ranks run different recipes or versions; the difference is printed."""
    mine = {"recipe": to_toml(recipe).splitlines(), "versions": [f"{k} {v}" for k, v in describe_versions().items()]}
    found = fabric.gather((mine, fabric.world.host))
    first, first_host = found[0]
    for rank, (theirs, host) in enumerate(found):
        for kind, lines in theirs.items():
            if lines != first[kind]:
                here, there = sorted(set(first[kind]) - set(lines)), sorted(set(lines) - set(first[kind]))
                raise ConfigError(
                    f"rank {rank} on {host} has another {kind.removesuffix('s')} than rank 0 on {first_host}: "
                    f"rank 0 has {'; '.join(here) or 'nothing'}, rank {rank} has {'; '.join(there) or 'nothing'}. "
                    "Start all ranks with the same command, in the same environment."
                )
