"""The fabric on torch.distributed: Gloo between CPUs, NCCL between GPUs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from time import perf_counter
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from deepex.errors import PeerError
from deepex.fabric.fabric import Fabric, Work
from deepex.fabric.meeting import Meeting
from deepex.fabric.meter import Meter

V = TypeVar("V")


class TorchFabric:
    """Collectives by torch.distributed, each with the meeting's timeout.

    Gloo's threads go on with a collective while the rank computes. A sum is made a mean before it leaves, by dividing
    what backward has just written, which the cache still holds.

    Arguments:
        meeting: where the ranks have met.
    """

    name = "torch"
    overlaps = True

    def __init__(self, meeting: Meeting) -> None:
        self.meeting, self.world, self.pulse, self.meter = meeting, meeting.world, meeting.pulse, Meter()
        self._ranks: Sequence[int] = range(self.world.size)
        self._process_group: Any = None  # torch's word for the default group
        with self._speaking("meeting"):
            dist.init_process_group(
                "gloo" if self.world.device == "cpu" else "cpu:gloo,cuda:nccl",
                store=meeting.store("torch"),
                rank=self.world.rank,
                world_size=self.world.size,
                timeout=timedelta(seconds=meeting.timeout_seconds),
            )

    def empty(self, numel: int) -> Tensor:
        return torch.zeros(numel, device=self.world.torch_device)

    def mean_(self, tensor: Tensor) -> Work:
        tensor.div_(self.world.size)
        with self._speaking("all-reduce"):
            handle = dist.all_reduce(tensor, op=dist.ReduceOp.SUM, group=self._process_group, async_op=True)
        return _Pending(self, handle, "all-reduce", tensor.nbytes)

    def broadcast_(self, tensor: Tensor, source: int) -> Work:
        with self._speaking("broadcast"):
            handle = dist.broadcast(tensor, src=self._ranks[source], group=self._process_group, async_op=True)
        return _Pending(self, handle, "broadcast", tensor.nbytes)

    def gather(self, value: V) -> list[V]:
        values: list[Any] = [None] * self.world.size
        with self._speaking("gather"):
            dist.all_gather_object(values, value, group=self._process_group)
        return cast(list[V], values)

    def group(self, ranks: Sequence[int]) -> Fabric:
        part = object.__new__(TorchFabric)
        part.meeting, part.pulse, part.meter = self.meeting, self.pulse, self.meter
        part.world = replace(self.world, rank=list(ranks).index(self.world.rank), size=len(ranks))
        part._ranks = [self._ranks[rank] for rank in ranks]
        with self._speaking("forming a group"):
            part._process_group = dist.new_group(
                part._ranks,
                timeout=timedelta(seconds=self.meeting.timeout_seconds),
                use_local_synchronization=True,
            )
        return part

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
                f"{self.meeting.world}: {verb} failed: {self.pulse.blame()}. Look for the first error there. "
                f"(A collective waits {self.meeting.timeout_seconds:g} s for a peer; torch said: {reason})"
            ) from error


class _Pending:
    """A collective under way on torch's threads; knows when it ended, for the meter."""

    def __init__(self, fabric: TorchFabric, handle: Any, verb: str, num_bytes: int) -> None:
        self.fabric, self.handle, self.verb, self.num_bytes = fabric, handle, verb, num_bytes
        self.started = self.ended = perf_counter()
        if fabric.world.device == "cpu":
            handle.get_future().add_done_callback(self._stamp)

    def wait(self) -> None:
        if self.handle is None:
            return
        begun = perf_counter()
        with self.fabric._speaking(self.verb):
            self.handle.wait()
        now = perf_counter()
        ended = self.ended if self.ended > self.started else now
        self.fabric.meter.add(self.num_bytes, ended - self.started, now - begun)
        self.handle = None

    def _stamp(self, future: object) -> None:
        self.ended = perf_counter()
