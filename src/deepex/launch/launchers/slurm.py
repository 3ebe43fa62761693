"""SLURM: tasks of an srun step are ranks."""

import subprocess

from deepex.launch.launchers.launcher import Environment, Launched, choose_address
from deepex.world import World


def detect_slurm(environment: Environment) -> Launched | None:
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
    return Launched(world=world, address=choose_address(environment, host, step))


def _first_host(node_list: str) -> str:
    """The first host of a node list such as n[1-4]."""
    done = subprocess.run(["scontrol", "show", "hostnames", node_list], capture_output=True, text=True, check=True)
    return done.stdout.split()[0]
