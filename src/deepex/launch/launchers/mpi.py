"""mpirun and mpiexec, of Open MPI and of MPICH, Intel MPI and their kin."""

import os
from pathlib import Path

from deepex.errors import ConfigError, UsageError
from deepex.fabric.mpi.thread import share_address
from deepex.launch.launchers.launcher import Environment, Launched, choose_address
from deepex.world import World

OPEN_MPI = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
MPICH = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")


def detect_mpi(environment: Environment) -> Launched | None:
    """A process of mpirun. Ranks of several hosts have MPI itself tell them where they meet."""
    if OPEN_MPI[0] in environment:
        names = OPEN_MPI
    elif MPICH[0] in environment and MPICH[3] in environment:
        names = MPICH
    else:
        return None
    rank, size, local_rank, local_size = (int(environment[name]) for name in names)
    world = World(rank=rank, size=size, local_rank=local_rank, local_size=local_size, launcher="mpi")
    if size > local_size and "MASTER_ADDR" not in environment:
        try:
            return Launched(world=world, address=share_address(world))
        except ConfigError as error:
            raise UsageError(
                f"mpirun started {size} ranks on several hosts and no address for their rendezvous is known. Set "
                f"MASTER_ADDR to the host of rank 0 and MASTER_PORT to a free port there, or let MPI tell it: {error}"
            ) from error
    return Launched(world=world, address=choose_address(environment, "127.0.0.1", _launcher_pid(names[0])))


def _launcher_pid(rank_variable: str) -> int:
    """The process that started this host's ranks: the nearest ancestor that is not itself part of a rank."""
    pid = os.getpid()
    while pid > 1 and rank_variable.encode() in Path(f"/proc/{pid}/environ").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid
