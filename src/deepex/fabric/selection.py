"""Which fabric ranks talk by: the one that is asked for, or the fastest that is correct where they run.

It knows the names of fabrics and how each is opened, and nothing of how they work.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal

from deepex.errors import ConfigError, PeerError
from deepex.fabric.fabric import Fabric, SoloFabric
from deepex.fabric.rendezvous import Rendezvous
from deepex.fabric.shared.fabric import SharedFabric
from deepex.fabric.torch_fabric import TorchFabric

FabricName = Literal["auto", "torch", "mpi", "shared"]


def _open_mpi(rendezvous: Rendezvous) -> Fabric:
    from deepex.fabric.mpi.fabric import MpiFabric  # needs mpi4py, which not everybody has

    return MpiFabric(rendezvous)


def _open_fastest(rendezvous: Rendezvous) -> Fabric:
    """`shared` where all ranks run on one host and compute on its processors, and `torch` elsewhere.

    Ranks of one host in containers of their own can't see each other's memory; all of them are told so.
    """
    hosts = set(rendezvous.exchange("host", rendezvous.world.host))
    if len(hosts) == 1 and rendezvous.world.device == "cpu":
        with suppress(ConfigError):
            return SharedFabric(rendezvous)
    return TorchFabric(rendezvous)


FABRICS: dict[str, Callable[[Rendezvous], Fabric]] = {
    "auto": _open_fastest,
    "torch": TorchFabric,
    "mpi": _open_mpi,
    "shared": SharedFabric,
}


@contextmanager
def open_fabric(name: FabricName, rendezvous: Rendezvous) -> Iterator[Fabric]:
    """The fabric of that name among the ranks of a rendezvous, for as long as the block lasts.

    A rank that leaves with an error tells the others why.
    """
    if rendezvous.world.size == 1:
        yield SoloFabric(rendezvous.world)
        return
    reason, is_cause = "it is done", False
    try:
        fabric = FABRICS[name](rendezvous)
        try:
            yield fabric
        finally:
            fabric.close()
    except BaseException as error:
        reason, is_cause = f"{type(error).__name__}: {error}", not isinstance(error, PeerError)
        raise
    finally:
        rendezvous.heartbeat.leave(reason, is_cause=is_cause)
