"""The fabric of ranks on one host: they average in memory that all of them see, in pieces that stay in the cache.

It knows processes and shared memory, and nothing of networks.
"""

import pickle
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import TypeVar, cast

import torch
from torch import Tensor

from deepex.fabric.fabric import Done, Fabric, Work
from deepex.fabric.rendezvous import Rendezvous
from deepex.fabric.shared.average import Bytes
from deepex.fabric.shared.collectives import broadcast, gather, mean
from deepex.fabric.shared.failure import FailureDetector
from deepex.fabric.shared.membership import join_group, join_host
from deepex.fabric.shared.peer_group import PeerGroup
from deepex.fabric.shared.peer_slot import BROADCAST, COLLECTIVES, GATHER, MEAN, CallHeader
from deepex.fabric.shared.progress import Operation, Steps
from deepex.fabric.shared.segment import Segment, open_peer
from deepex.fabric.traffic import Traffic

V = TypeVar("V")


class SharedFabric:
    """Collectives through shared memory, among ranks of one host.

    A mean is x <- (x_0 + x_1 + ... + x_{P-1}) / P, added in this order whoever adds, so that its bits are the same on
    all ranks and however a block is cut. Rank r computes share r of it and writes it to all. Nothing is copied where
    the tensors of all ranks lie in blocks of `empty`; others pass through a window. Work is done when it is waited for,
    and each must be. A block's memory is free when its rank drops it.

    Arguments:
        rendezvous: where all ranks have met.
        ranks: those that belong to this fabric, all ranks unless given; called by just those.
        parent: a fabric that these ranks share already, if this is a group of it.
    """

    name = "shared"
    overlaps = False

    def __init__(
        self, rendezvous: Rendezvous, ranks: Sequence[int] | None = None, *, parent: "SharedFabric | None" = None
    ) -> None:
        self.ranks: Sequence[int] = range(rendezvous.world.size) if ranks is None else ranks
        if parent is None:
            self.traffic = Traffic()
            self._peers, self._group = join_host(rendezvous, self.ranks)
        else:
            self.traffic, self._peers = parent.traffic, parent._peers
            self._group = join_group(rendezvous, self.ranks, self._peers)
        self.rendezvous: Rendezvous | None = rendezvous
        self.heartbeat, self.world = rendezvous.heartbeat, self._group.world
        self._is_part = parent is not None

    def empty(self, numel: int) -> Tensor:
        return self._peers.blocks.empty(numel)

    def common(self, numel: int) -> Tensor:
        """One float32 block of zeros, the same memory on all ranks, which write to it in no order. Collective."""
        segment = Segment(4 * max(1, numel)) if self.world.is_first else None
        location = self.gather(None if segment is None else segment.location)[0]
        assert location is not None, "the first rank gives its own"
        first = self._peers.processes[self.ranks[0]]
        try:
            memory = open_peer(first, location) if segment is None else segment
        except (OSError, LookupError) as error:
            raise self._group.detector.unreachable("sharing a block", error) from error
        memory.enlarge_pages()
        self.gather(None)  # from here on the first rank may drop its own
        return memory.tensor()[:numel]

    def mean_(self, tensor: Tensor) -> Work:
        if not tensor.is_floating_point():
            raise TypeError(f"the mean of a tensor of {tensor.dtype}: it must be floating")
        return self._begin(tensor, MEAN, 0, mean)

    def broadcast_(self, tensor: Tensor, source: int) -> Work:
        return self._begin(tensor, BROADCAST, source, broadcast)

    def gather(self, value: V) -> list[V]:
        if self.world.size == 1:
            return [value]
        parts = [bytearray() for _ in self.ranks]
        payload = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        _finish(self._enqueue(gather(self._group, payload, parts), GATHER), self._group.detector)
        return [cast(V, pickle.loads(part)) for part in parts]

    def group(self, ranks: Sequence[int]) -> Fabric:
        assert self.rendezvous is not None, "a shared fabric always has one"
        part = SharedFabric(self.rendezvous, [self.ranks[rank] for rank in ranks], parent=self)
        part.gather(None)  # nobody drops its slot before all have opened it
        return part

    def close(self) -> None:
        """Leave, and all groups of it too. Peers that still wait get an error, not silence."""
        if self._is_part:
            self._group.barrier.leave()
        else:
            self._peers.leave()

    def _begin(
        self, tensor: Tensor, collective: int, source: int, steps: Callable[[PeerGroup, Bytes, CallHeader], Steps]
    ) -> Work:
        if not tensor.is_contiguous():
            shape = tuple(tensor.shape)
            raise ValueError(f"{COLLECTIVES[collective]} of a tensor of shape {shape} that is not contiguous")
        if self.world.size == 1:
            return Done()
        flat = tensor.detach().view(-1).view(torch.uint8).numpy()
        header = CallHeader.of(collective, tensor, source, self._peers.blocks.locate(tensor))
        operation = self._enqueue(steps(self._group, flat, header), collective)
        return _Pending(operation, self._group.detector, self.traffic, tensor.nbytes)

    def _enqueue(self, steps: Steps, collective: int) -> Operation:
        barrier, check = self._group.barrier, self._group.detector.check
        check_peers = partial(check, COLLECTIVES[collective], barrier.missing, barrier.left)
        return self._peers.engine.own.enqueue(barrier, steps, check_peers)


def _finish(operation: Operation, detector: FailureDetector) -> None:
    if detector.error is not None:
        raise detector.error
    operation.finish()


class _Pending:
    """Work that is done when it is waited for."""

    def __init__(self, operation: Operation, detector: FailureDetector, traffic: Traffic, num_bytes: int) -> None:
        self._operation, self._detector, self._traffic, self._num_bytes = operation, detector, traffic, num_bytes
        self._is_over = False

    def wait(self) -> None:
        if self._is_over:
            return
        begun = perf_counter()
        _finish(self._operation, self._detector)
        self._is_over = True
        self._traffic.add(self._num_bytes, self._operation.busy_seconds, perf_counter() - begun)
