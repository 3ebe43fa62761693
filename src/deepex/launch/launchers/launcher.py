"""What a launcher tells a process: its world, and where its ranks meet. Functions of the environment, and no more."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from deepex.world import World

Environment: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Launched:
    """A rank's world and the place of its rendezvous.

    Attributes:
        world: rank, size, and the same on this host.
        address: `host:port` where ranks meet.
        agent_store: whether the launcher itself serves that address, as torchrun's agent does.
    """

    world: World
    address: str
    agent_store: bool = False


Launcher: TypeAlias = Callable[[Environment], Launched | None]
"""The world that a launcher has put a process into, by its environment; None if it is not that launcher's."""


def choose_address(environment: Environment, host: str, job: int) -> str:
    """Where ranks meet: what the user says, or a port that follows from the job, so that all ranks agree on it."""
    host = environment.get("MASTER_ADDR", host)
    port = environment.get("MASTER_PORT", str(20_000 + job * 7 % 12_000))
    return f"{host}:{port}"
