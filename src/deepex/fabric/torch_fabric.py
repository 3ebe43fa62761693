"""The fabric on torch.distributed's engines: Gloo between CPUs, NCCL between GPUs.

The engines are used as they are, without torch's default process group, which there can be only one of in a process and
whose groups all ranks must form together.
"""

import ctypes
import pickle
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from time import perf_counter
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor
from torch._C._distributed_c10d import (  # torch.distributed leaves some of them out of its types
    AllreduceOptions,
    BroadcastOptions,
    ProcessGroupGloo,
    ReduceOp,
)

from deepex.fabric.fabric import Fabric, Work
from deepex.fabric.heartbeat import peer_error
from deepex.fabric.rendezvous import Meeting
from deepex.fabric.traffic import Meter

V = TypeVar("V")


class TorchFabric:
    """Collectives by Gloo and NCCL, each with the meeting's timeout.

    Gloo's threads go on with a collective while the rank computes. A sum is made a mean before it leaves, by dividing
    what backward has just written, which the cache still holds.

    Arguments:
        meeting: where the ranks have met.
        ranks: the members, by their number in the meeting; all of it by default.
        name: what no other group of the same members is called.
    """

    name = "torch"
    overlaps = True

    def __init__(self, meeting: Meeting, ranks: Sequence[int] | None = None, name: str = "world") -> None:
        self.meeting: Meeting | None = meeting
        self.ranks: Sequence[int] = list(range(meeting.world.size) if ranks is None else ranks)
        rank, size = self.ranks.index(meeting.world.rank), len(self.ranks)
        self.world = replace(meeting.world, rank=rank, size=size)
        self.pulse, self.meter = meeting.pulse, Meter()
        self._everyone, self._timeout_seconds = meeting.world, meeting.timeout_seconds
        self._timeout = timedelta(seconds=meeting.timeout_seconds)
        self._formed: dict[tuple[int, ...], int] = {}
        store = meeting.store(f"torch/{name}")
        with self._speaking("meeting"):
            self._on_cpu: Any = ProcessGroupGloo(store, rank, size, self._timeout)
            _keep_for_good(self._on_cpu)
            self._engine: Any = self._on_cpu
            if self.world.device != "cpu":
                from torch._C._distributed_c10d import ProcessGroupNCCL  # only builds for GPUs have it

                options = ProcessGroupNCCL.Options()
                options._timeout = self._timeout
                self._engine = ProcessGroupNCCL(meeting.store(f"nccl/{name}"), rank, size, options)

    def empty(self, numel: int) -> Tensor:
        return torch.zeros(numel, device=self.world.torch_device)

    def mean_(self, tensor: Tensor) -> Work:
        tensor.div_(self.world.size)
        options = AllreduceOptions()
        options.reduceOp, options.timeout = ReduceOp(ReduceOp.SUM), self._timeout
        with self._speaking("all-reduce"):
            handle = self._engine_for(tensor).allreduce([tensor.detach()], options)
        return _Pending(self, handle, "all-reduce", tensor)

    def broadcast_(self, tensor: Tensor, source: int) -> Work:
        options = BroadcastOptions()
        options.rootRank, options.rootTensor, options.timeout = source, 0, self._timeout
        with self._speaking("broadcast"):
            handle = self._engine_for(tensor).broadcast([tensor.detach()], options)
        return _Pending(self, handle, "broadcast", tensor)

    def gather(self, value: V) -> list[V]:
        payload = torch.from_numpy(np.frombuffer(pickle.dumps(value, pickle.HIGHEST_PROTOCOL), np.uint8).copy())
        lengths = [int(each) for each in self._gather_bytes(torch.tensor([len(payload)]))]
        padded = torch.zeros(max(lengths), dtype=torch.uint8)
        padded[: len(payload)] = payload
        parts = self._gather_bytes(padded)
        return [
            cast(V, pickle.loads(part[:length].numpy().tobytes())) for part, length in zip(parts, lengths, strict=True)
        ]

    def group(self, ranks: Sequence[int]) -> Fabric:
        assert self.meeting is not None
        members = tuple(self.ranks[rank] for rank in ranks)
        self._formed[members] = self._formed.get(members, 0) + 1
        name = f"{','.join(map(str, members))}/{self._formed[members]}"
        part = TorchFabric(self.meeting, members, name)
        part.meter, part._formed = self.meter, self._formed
        return part

    def close(self) -> None:
        """Leave. Connections end with the process: Gloo may abort it if they end before their peers' do."""
        return None

    def _engine_for(self, tensor: Tensor) -> Any:
        return self._on_cpu if tensor.device.type == "cpu" else self._engine

    def _gather_bytes(self, tensor: Tensor) -> list[Tensor]:
        parts = [torch.empty_like(tensor) for _ in self.ranks]
        with self._speaking("gather"):
            self._on_cpu.allgather([parts], [tensor]).wait()
        return parts

    @contextmanager
    def _speaking(self, verb: str) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # torch raises its DistBackendError and plain RuntimeError alike
            detail = f"a collective waits {self._timeout_seconds:g} s for a peer; torch said: {_reason(error)}"
            raise peer_error(self.pulse, self._everyone, verb, detail=detail) from error


def _reason(error: RuntimeError) -> str:
    """What torch says, without where in its source it says so and what it supposes."""
    first = str(error).splitlines()[0]
    return re.sub(r"^\[[^]]*\.cc:\d+\] ", "", first).partition(" This is typically")[0]


def _keep_for_good(engine: object) -> None:
    """Never destroy an engine: Gloo's threads call `terminate` where a peer hangs up meanwhile (docs/log.md)."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine))


class _Pending:
    """A collective under way on torch's threads; knows when it ended, for the meter."""

    def __init__(self, fabric: TorchFabric, handle: Any, verb: str, tensor: Tensor) -> None:
        self.fabric, self.handle, self.verb, self.num_bytes = fabric, handle, verb, tensor.nbytes
        self.started = self.ended = perf_counter()
        if tensor.device.type == "cpu":
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
