"""Which fabric ranks talk by: the one that is asked for, or the fastest that is correct where they stand."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from deepex.errors import PeerError
from deepex.fabric.fabric import Fabric, SoloFabric
from deepex.fabric.meeting import Meeting
from deepex.fabric.shared_fabric import SharedFabric
from deepex.fabric.torch_fabric import TorchFabric

FabricName = Literal["auto", "torch", "mpi", "shared"]


def _open_mpi(meeting: Meeting) -> Fabric:
    from deepex.fabric.mpi_fabric import MpiFabric  # needs mpi4py, which not everybody has

    return MpiFabric(meeting)


FABRICS: dict[str, Callable[[Meeting], Fabric]] = {"torch": TorchFabric, "mpi": _open_mpi, "shared": SharedFabric}


@contextmanager
def open_fabric(name: FabricName, meeting: Meeting) -> Iterator[Fabric]:
    """The fabric of that name among the ranks of a meeting, for as long as the block lasts.

    `auto` is `shared` where all ranks stand on one host and compute on its processors, and `torch` elsewhere. A rank
    that leaves with an error tells the others why.
    """
    if meeting.world.size == 1:
        yield SoloFabric(meeting.world)
        return
    chosen = _fastest(meeting) if name == "auto" else name
    reason, is_cause = "it is done", False
    try:
        fabric = FABRICS[chosen](meeting)
        try:
            yield fabric
        finally:
            fabric.close()
    except BaseException as error:
        reason, is_cause = f"{type(error).__name__}: {error}", not isinstance(error, PeerError)
        raise
    finally:
        meeting.pulse.leave(reason, is_cause=is_cause)


def _fastest(meeting: Meeting) -> str:
    hosts = set(meeting.exchange("host", meeting.world.host))
    return "shared" if len(hosts) == 1 and meeting.world.device == "cpu" else "torch"
