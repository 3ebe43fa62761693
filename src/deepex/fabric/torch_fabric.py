"""The fabric on torch.distributed: Gloo between CPUs. It is given a rendezvous address and reads no environment."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, TCPStore  # torch.distributed leaves them out of its types

from deepex.errors import PeerError
from deepex.fabric.fabric import Work
from deepex.world import World

V = TypeVar("V")


class TorchFabric:
    """Collectives by torch.distributed's default process group.

    Arguments:
        world: this rank's place.
        address: `host:port` of the store that ranks meet at (rank 0 serves it unless an agent already does).
        agent_store: whether a launcher's agent serves the store already, as torchrun's does.
        timeout_seconds: how long a collective waits for a peer before it raises.
    """

    name = "torch"

    def __init__(self, world: World, *, address: str, agent_store: bool, timeout_seconds: float = 300.0) -> None:
        self.world = world
        self.timeout_seconds = timeout_seconds
        host, _, port = address.rpartition(":")
        timeout = timedelta(seconds=timeout_seconds)
        with self._speaking("meeting"):
            serves = world.is_first and not agent_store
            tcp = TCPStore(host, int(port), world.size, is_master=serves, timeout=timeout)
            store = PrefixStore("deepex", tcp)  # an agent keeps keys of its own there
            dist.init_process_group("gloo", store=store, rank=world.rank, world_size=world.size, timeout=timeout)

    def mean_(self, tensor: Tensor) -> Work:
        with self._speaking("all-reduce"):
            handle = dist.all_reduce(tensor, op=dist.ReduceOp.SUM, async_op=True)
        return _Mean(self, handle, tensor)

    def broadcast_(self, tensor: Tensor, source: int) -> Work:
        with self._speaking("broadcast"):
            handle = dist.broadcast(tensor, src=source, async_op=True)
        return _Pending(self, handle, "broadcast")

    def gather(self, value: V) -> list[V]:
        values: list[Any] = [None] * self.world.size
        with self._speaking("gather"):
            dist.all_gather_object(values, value)
        return cast(list[V], values)

    def barrier(self) -> None:
        with self._speaking("barrier"):
            dist.monitored_barrier(timeout=timedelta(seconds=self.timeout_seconds))

    def close(self) -> None:
        """Leave the group. Peers that still wait get an error, not silence."""
        if dist.is_initialized():
            dist.destroy_process_group()

    @contextmanager
    def _speaking(self, verb: str) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # torch raises its DistBackendError and plain RuntimeError alike
            reason = str(error).splitlines()[0]
            raise PeerError(
                f"{self.world}: {verb} failed ({reason}). A peer has died or did not answer within "
                f"{self.timeout_seconds:g} s: look for the first error among the other ranks."
            ) from error


class _Pending:
    def __init__(self, fabric: TorchFabric, handle: Any, verb: str) -> None:
        self.fabric, self.handle, self.verb = fabric, handle, verb

    def wait(self) -> None:
        with self.fabric._speaking(self.verb):
            self.handle.wait()


class _Mean(_Pending):
    """An all-reduce whose sum becomes a mean on arrival (Gloo has no mean of its own)."""

    def __init__(self, fabric: TorchFabric, handle: Any, tensor: Tensor) -> None:
        super().__init__(fabric, handle, "all-reduce")
        self.tensor = tensor

    def wait(self) -> None:
        super().wait()
        self.tensor.div_(self.fabric.world.size)
