"""Finding one's rank under a launcher: the table of launchers, asked one after the other."""

import os
from functools import cache

from deepex.errors import UsageError
from deepex.launch.launchers.launcher import Environment, Launched, Launcher
from deepex.launch.launchers.mpi import detect_mpi
from deepex.launch.launchers.slurm import detect_slurm
from deepex.launch.launchers.torchrun import detect_torchrun

# In this order: inside a job's allocation the one that started this very process is asked first.
LAUNCHERS: tuple[Launcher, ...] = (
    detect_torchrun,
    detect_slurm,
    detect_mpi,
)


@cache
def find_world() -> Launched | None:
    """The world of this process, found out once: under MPI ranks may have to talk for it."""
    return detect(os.environ)


def detect(environment: Environment) -> Launched | None:
    """The world that a launcher has put this process into; None for a process started by hand."""
    found = (launcher(environment) for launcher in LAUNCHERS)
    return next((launched for launched in found if launched is not None), None)


def refuse_ranks(command: str) -> None:
    """Refuse to run a command of one process as one of several ranks."""
    launched = detect(os.environ)
    if launched is not None and launched.world.size > 1:
        raise UsageError(
            f"{launched.world.launcher} started {launched.world.size} ranks, and {command} is one process. "
            "Start it by hand, or as one rank."
        )
