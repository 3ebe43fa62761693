"""torchrun, and whatever else starts ranks with torchrun's variables: deepex's own local ranks, a cluster's, tests'."""

from deepex.launch.launchers.launcher import Environment, Launched
from deepex.world import World


def detect_torchrun(environment: Environment) -> Launched | None:
    """A rank that torch's elastic agent has started, or that was given the same variables."""
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


def torchrun_variables(
    *, rank: int, size: int, address: str, port: int, local_size: int | None = None, agent_store: bool = False
) -> dict[str, str]:
    """The variables by which a process finds its rank as under torchrun.

    Arguments:
        rank, size: of the whole world.
        address, port: where ranks meet.
        local_size: ranks of each host, which follow one another; by default all stand on one.
        agent_store: whether the process that starts the ranks serves the address, so that rank 0 need not.

    >>> detect_torchrun(torchrun_variables(rank=3, size=4, address="n1", port=5000, local_size=2)).world.local_rank
    1
    """
    local_size = size if local_size is None else local_size
    return {
        "TORCHELASTIC_RUN_ID": f"deepex-{address}-{port}",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_USE_AGENT_STORE": str(agent_store),
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank % local_size),
        "LOCAL_WORLD_SIZE": str(local_size),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
    }
