"""The fabric on torch.distributed's engines: Gloo between CPUs, NCCL between GPUs.

The engines are used as they are, without torch's default process group, which there can be only one of in a process and
whose groups all ranks must form together.
"""

import ctypes
import pickle
import re
from collections import Counter
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
    Store,
)

from deepex.fabric.fabric import Fabric, Work
from deepex.fabric.heartbeat import peer_error
from deepex.fabric.rendezvous import Rendezvous
from deepex.fabric.traffic import Traffic

V = TypeVar("V")


class TorchFabric:
    """Collectives by Gloo and NCCL, each with the rendezvous's timeout.

    Gloo's threads go on with a collective while the rank computes. A sum is made a mean before it leaves, by dividing
    what backward has just written, which the cache still holds.

    Arguments:
        rendezvous: where the ranks have met.
        ranks: the members, by their number among all ranks; all of them unless given.
        parent: the fabric that this is a group of, if it is one.
    """

    name = "torch"
    overlaps = True

    def __init__(
        self, rendezvous: Rendezvous, ranks: Sequence[int] | None = None, *, parent: "TorchFabric | None" = None
    ) -> None:
        self.rendezvous: Rendezvous | None = rendezvous
        self.ranks: Sequence[int] = list(range(rendezvous.world.size) if ranks is None else ranks)
        rank, size = self.ranks.index(rendezvous.world.rank), len(self.ranks)
        self.world, self.heartbeat = replace(rendezvous.world, rank=rank, size=size), rendezvous.heartbeat
        self.traffic: Traffic = Traffic() if parent is None else parent.traffic
        self._group_counts: Counter[tuple[int, ...]] = Counter() if parent is None else parent._group_counts
        self._all_ranks, self._timeout_seconds = rendezvous.world, rendezvous.timeout_seconds
        self._timeout = timedelta(seconds=rendezvous.timeout_seconds)
        name = "world" if parent is None else self._name_group()
        with self._reporting("rendezvous"):
            self._cpu_engine: Any = ProcessGroupGloo(rendezvous.store(f"torch/{name}"), rank, size, self._timeout)
            _never_destroy(self._cpu_engine)
            self._engine: Any = self._cpu_engine
            if self.world.device != "cpu":
                self._engine = _open_nccl(rendezvous.store(f"nccl/{name}"), rank, size, self._timeout)

    def empty(self, numel: int) -> Tensor:
        return torch.zeros(numel, device=self.world.torch_device)

    def mean_(self, tensor: Tensor) -> Work:
        tensor.div_(self.world.size)
        options = AllreduceOptions()
        options.reduceOp, options.timeout = ReduceOp(ReduceOp.SUM), self._timeout
        with self._reporting("all-reduce"):
            handle = self._engine_for(tensor).allreduce([tensor.detach()], options)
        return _Pending(self, handle, "all-reduce", tensor)

    def broadcast_(self, tensor: Tensor, source: int) -> Work:
        options = BroadcastOptions()
        options.rootRank, options.rootTensor, options.timeout = source, 0, self._timeout
        with self._reporting("broadcast"):
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
        assert self.rendezvous is not None
        return TorchFabric(self.rendezvous, [self.ranks[rank] for rank in ranks], parent=self)

    def close(self) -> None:
        """Leave. Connections end with the process: Gloo may abort it if they end before their peers' do."""
        return None

    def _name_group(self) -> str:
        """What no other group is called, though the same ranks may form several."""
        members = tuple(self.ranks)
        self._group_counts[members] += 1
        return f"{','.join(map(str, members))}/{self._group_counts[members]}"

    def _engine_for(self, tensor: Tensor) -> Any:
        return self._cpu_engine if tensor.device.type == "cpu" else self._engine

    def _gather_bytes(self, tensor: Tensor) -> list[Tensor]:
        parts = [torch.empty_like(tensor) for _ in self.ranks]
        with self._reporting("gather"):
            self._cpu_engine.allgather([parts], [tensor]).wait()
        return parts

    @contextmanager
    def _reporting(self, verb: str) -> Iterator[None]:
        """Raise what torch raises as an error that names who is gone."""
        try:
            yield
        except RuntimeError as error:  # torch raises its DistBackendError and plain RuntimeError alike
            detail = f"a collective waits {self._timeout_seconds:g} s for a peer; torch said: {_reason(error)}"
            raise peer_error(self.heartbeat, self._all_ranks, verb, detail=detail) from error


def _open_nccl(store: Store, rank: int, size: int, timeout: timedelta) -> Any:
    from torch._C._distributed_c10d import ProcessGroupNCCL  # only builds for GPUs have it

    options = ProcessGroupNCCL.Options()
    options._timeout = timeout
    return ProcessGroupNCCL(store, rank, size, options)


def _reason(error: RuntimeError) -> str:
    """What torch says, without where in its source it says so and what it supposes."""
    first = str(error).splitlines()[0]
    return re.sub(r"^\[[^]]*\.cc:\d+\] ", "", first).partition(" This is typically")[0]


def _never_destroy(engine: object) -> None:
    """Never destroy an engine: Gloo's threads call `terminate` where a peer hangs up meanwhile (docs/log.md)."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine))


class _Pending:
    """A collective under way on torch's threads; knows when it ended, for the traffic."""

    def __init__(self, fabric: TorchFabric, handle: Any, verb: str, tensor: Tensor) -> None:
        self.fabric, self.handle, self.verb, self.num_bytes = fabric, handle, verb, tensor.nbytes
        self.started = self.ended = perf_counter()
        if tensor.device.type == "cpu":
            handle.get_future().add_done_callback(self._stamp)

    def wait(self) -> None:
        if self.handle is None:
            return
        begun = perf_counter()
        with self.fabric._reporting(self.verb):
            self.handle.wait()
        now = perf_counter()
        ended = self.ended if self.ended > self.started else now
        self.fabric.traffic.add(self.num_bytes, ended - self.started, now - begun)
        self.handle = None

    def _stamp(self, future: object) -> None:
        self.ended = perf_counter()
