"""Finding one's rank under torchrun, srun or mpirun. Each launcher is a function of the environment."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from deepex.errors import ConfigError, UsageError
from deepex.fabric.mpi.thread import meet
from deepex.world import World

Environment = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Launched:
    """A rank's world and the place where its ranks meet."""

    world: World
    address: str
    agent_store: bool = False


@cache
def find_world() -> Launched | None:
    """The world of this process, found out once: under MPI ranks may have to talk for it."""
    return detect(os.environ)


def detect(environment: Environment) -> Launched | None:
    """The world that a launcher has put this process into; None for a process started by hand."""
    for launcher in (torchrun, slurm, mpi):
        found = launcher(environment)
        if found is not None:
            return found
    return None


def torchrun(environment: Environment) -> Launched | None:
    """torchrun, and deepex's own local ranks, which torch's elastic agent starts too."""
    if "TORCHELASTIC_RUN_ID" not in environment:
        return None
    world = World(
        rank=int(environment["RANK"]),
        size=int(environment["WORLD_SIZE"]),
        local_rank=int(environment["LOCAL_RANK"]),
        local_size=int(environment["LOCAL_WORLD_SIZE"]),
        launcher="torchrun",
    )
    return Launched(
        world=world,
        address=f"{environment['MASTER_ADDR']}:{environment['MASTER_PORT']}",
        agent_store=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
    )


def slurm(environment: Environment) -> Launched | None:
    """A task of an srun step. The batch script itself is not one: it has no step."""
    if "SLURM_STEP_ID" not in environment or "SLURM_PROCID" not in environment:
        return None
    world = World(
        rank=int(environment["SLURM_PROCID"]),
        size=int(environment["SLURM_STEP_NUM_TASKS"]),
        local_rank=int(environment["SLURM_LOCALID"]),
        local_size=int(environment["SLURM_STEP_TASKS_PER_NODE"].split("(")[0].split(",")[0]),
        launcher="slurm",
    )
    many_nodes = int(environment.get("SLURM_STEP_NUM_NODES", "1")) > 1
    host = _first_host(environment["SLURM_STEP_NODELIST"]) if many_nodes else "127.0.0.1"
    step = int(environment["SLURM_JOB_ID"]) * 64 + int(environment["SLURM_STEP_ID"])
    return Launched(world=world, address=_address(environment, host, step))


def mpi(environment: Environment) -> Launched | None:
    """A process of mpirun: Open MPI's variables, or those of MPICH, Intel MPI and their kin."""
    if "OMPI_COMM_WORLD_RANK" in environment:
        names = (
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_COMM_WORLD_LOCAL_RANK",
            "OMPI_COMM_WORLD_LOCAL_SIZE",
        )
    elif "PMI_RANK" in environment and "MPI_LOCALNRANKS" in environment:
        names = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
    else:
        return None
    rank, size, local_rank, local_size = (int(environment[name]) for name in names)
    world = World(rank=rank, size=size, local_rank=local_rank, local_size=local_size, launcher="mpi")
    if size > local_size and "MASTER_ADDR" not in environment:
        try:
            return Launched(world=world, address=meet(world))
        except ConfigError as error:
            raise UsageError(
                f"mpirun started {size} ranks on several hosts and no meeting point is known. Set MASTER_ADDR to the "
                f"host of rank 0 and MASTER_PORT to a free port there, or let MPI tell it: {error}"
            ) from error
    return Launched(world=world, address=_address(environment, "127.0.0.1", _launcher_pid(names[0])))


def _address(environment: Environment, host: str, job: int) -> str:
    """Where ranks meet: what the user says, or a port that follows from the job, so that all ranks agree on it."""
    host = environment.get("MASTER_ADDR", host)
    port = environment.get("MASTER_PORT", str(20_000 + job * 7 % 12_000))
    return f"{host}:{port}"


def _launcher_pid(rank_variable: str) -> int:
    """The process that started this host's ranks: the nearest ancestor that is not itself part of a rank."""
    pid = os.getpid()
    while pid > 1 and rank_variable.encode() in Path(f"/proc/{pid}/environ").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def _first_host(node_list: str) -> str:
    """The first host of a SLURM node list such as n[1-4]."""
    done = subprocess.run(["scontrol", "show", "hostnames", node_list], capture_output=True, text=True, check=True)
    return done.stdout.split()[0]
