"""The fabric on the machine's own MPI, by mpi4py. MPI waits for ever for a peer that is gone; this does not.

It knows communicators and tensors on CPUs, and leaves all calls of MPI to one thread.
"""

import pickle
from array import array
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from deepex.errors import ConfigError, PeerError
from deepex.fabric.fabric import Fabric, Work
from deepex.fabric.heartbeat import peer_error
from deepex.fabric.mpi.thread import Steps, Task, TaskQueue, check_world, mpi_thread
from deepex.fabric.rendezvous import Rendezvous
from deepex.fabric.traffic import Traffic

if TYPE_CHECKING:
    from mpi4py import MPI

V = TypeVar("V")

SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_TO_NOTICE = 20.0  # what peers may need beyond the timeout, before they know that this rank is gone
SECONDS_TO_FOLLOW = 2.0  # where a peer has left after the last collective, it ends here by then
PIECE = 32_000  # elements: they stay in the cache, and torch gives no fewer than 32,768 to further threads
TYPES = {torch.float32: "f", torch.float64: "d"}  # as MPI calls what it can add


class MpiFabric:
    """Collectives by MPI on the memory of CPU tensors, each with the rendezvous's timeout.

    A thread goes on with a collective while the rank computes. 32 and 64 bits are added by MPI, divided beforehand as
    TorchFabric does. 16 bits, which not every MPI can add, are exchanged, added as 32 bits by the rank whose share they
    are, and rounded once. Tensors on a GPU are not for this fabric: only an MPI that was built for them can take them.

    Arguments:
        rendezvous: where the ranks have met.
        parent: the fabric that this is a group of, if it is one.
        members: the group's members, by their number in the parent.
    """

    name = "mpi"
    overlaps = True

    def __init__(
        self, rendezvous: Rendezvous, *, parent: "MpiFabric | None" = None, members: Sequence[int] = ()
    ) -> None:
        world = rendezvous.world
        if world.device != "cpu":
            raise ConfigError(f"fabric 'mpi' works on CPUs, not on {world.device}. Use --fabric torch.")
        self.rendezvous: Rendezvous | None = rendezvous
        self.heartbeat = rendezvous.heartbeat
        self.traffic: Traffic = Traffic() if parent is None else parent.traffic
        self.ranks: Sequence[int] = range(world.size) if parent is None else [parent.ranks[rank] for rank in members]
        self.world = replace(world, rank=self.ranks.index(world.rank), size=len(self.ranks))
        self._all_ranks, self._timeout_seconds = world, rendezvous.timeout_seconds
        self._thread, self._queue = mpi_thread(), TaskQueue()
        self._comm: MPI.Intracomm
        if parent is None:
            self._thread.timeout_seconds = rendezvous.timeout_seconds + SECONDS_TO_NOTICE
            self._wait_for(self._thread.started, "starting MPI")
            check_world(self._thread, world)
            self._comm = self._run(_copy_world(), "rendezvous")
        else:
            self._comm = self._run(_form(parent._comm, list(members)), "forming a group")

    def empty(self, numel: int) -> Tensor:
        return torch.zeros(numel)

    def mean_(self, tensor: Tensor) -> Work:
        if not tensor.is_floating_point():
            raise TypeError(f"the mean of a tensor of {tensor.dtype}: it must be floating")
        tensor = tensor.detach()
        if tensor.dtype in TYPES:
            steps = _add(self._comm, tensor.div_(self.world.size))
        else:
            steps = _average_shares(self._comm, tensor.view(-1))
        return _Pending(self, self._thread.submit(steps, self._queue), "all-reduce", tensor.nbytes)

    def broadcast_(self, tensor: Tensor, source: int) -> Work:
        steps = _broadcast(self._comm, tensor.detach(), source)
        return _Pending(self, self._thread.submit(steps, self._queue), "broadcast", tensor.nbytes)

    def gather(self, value: V) -> list[V]:
        parts = self._run(_gather(self._comm, pickle.dumps(value)), "gather")
        return [pickle.loads(part) for part in parts]

    def group(self, ranks: Sequence[int]) -> Fabric:
        assert self.rendezvous is not None, "an MPI fabric always has one"
        return MpiFabric(self.rendezvous, parent=self, members=ranks)

    def close(self) -> None:
        """Leave. Peers that still wait get an error; MPI itself is left by `mpi_thread.finish`, once in a process."""
        if self.heartbeat.failure:
            self._thread.abandon()

    def _run(self, steps: Steps, verb: str) -> Any:
        task = self._thread.submit(steps, self._queue)
        self._wait_for(task, verb)
        return task.result

    def _wait_for(self, task: Task, verb: str) -> None:
        """Wait for a task, as long as all peers live and the time is not up. MPI would wait for ever."""
        lost_at = None
        while not task.done.wait(SECONDS_BETWEEN_LOOKS):
            now = perf_counter()
            lost_at = lost_at or (now if self.heartbeat.failed_ranks.intersection(self.ranks) else None)
            is_lost = lost_at is not None and now - lost_at > SECONDS_TO_FOLLOW
            if is_lost or self._thread.is_over or now - task.started > self._timeout_seconds:
                self._thread.abandon()
                raise self._failure(verb, "nothing")
        if isinstance(task.error, ConfigError):
            raise task.error
        if task.error is not None:
            self._thread.abandon()
            raise self._failure(verb, str(task.error)) from task.error

    def _failure(self, verb: str, reason: str) -> PeerError:
        detail = f"a collective waits {self._timeout_seconds:g} s for a peer; MPI said: {reason}"
        return peer_error(self.heartbeat, self._all_ranks, verb, detail=detail)


class _Pending:
    """A collective under way in MPI's thread, which notes when it ended, for the traffic."""

    def __init__(self, fabric: MpiFabric, task: Task, verb: str, num_bytes: int) -> None:
        self.fabric, self.verb, self.num_bytes = fabric, verb, num_bytes
        self.task: Task | None = task

    def wait(self) -> None:
        if self.task is None:
            return
        begun = perf_counter()
        self.fabric._wait_for(self.task, self.verb)
        busy_seconds = self.task.ended - self.task.started
        self.fabric.traffic.add(self.num_bytes, busy_seconds, perf_counter() - begun)
        self.task = None


def _copy_world() -> Steps:
    from mpi4py import MPI

    comm, request = MPI.COMM_WORLD.Idup()  # a space of its own: user code may talk by MPI too
    yield [request]
    return comm


def _add(comm: "MPI.Intracomm", tensor: Tensor) -> Steps:
    from mpi4py import MPI

    yield [comm.Iallreduce(MPI.IN_PLACE, (_memory(tensor), TYPES[tensor.dtype]))]


def _average_shares(comm: "MPI.Intracomm", tensor: Tensor) -> Steps:
    """Send every rank its share of all tensors; it adds them, divides, rounds once, and sends the outcome to all.

    With an operation of one's own for MPI's all-reduce, sums are rounded to 16 bits at each step, and MPICH sends whole
    buffers at each: 12.5 MB took 18 ms on 2 ranks (this: 26), 36 on 3 (42), 48 on 4 (42), and more steps on more. A
    rank's share of its own tensor stays where it is: MPICH took 70 ms to send 1 MB to itself.
    """
    from mpi4py import MPI

    size, rank, numel = comm.size, comm.rank, tensor.numel()
    starts = [numel * index // size for index in range(size + 1)]
    counts = [end - start for start, end in pairwise(starts)]
    own = tensor[starts[rank] : starts[rank + 1]]
    theirs = torch.empty(size - 1, len(own), dtype=tensor.dtype)
    to_others = [0 if index == rank else count for index, count in enumerate(counts)]
    from_others = [0 if index == rank else len(own) for index in range(size)]
    places = [0, *accumulate(from_others)][:-1]
    yield [
        comm.Ialltoallv(
            (_memory(tensor), to_others, starts[:-1], MPI.INT16_T), (_memory(theirs), from_others, places, MPI.INT16_T)
        )
    ]
    for start in range(0, len(own), PIECE):
        piece = own[start : start + PIECE]
        total = piece.float()
        for row in theirs:
            total += row[start : start + PIECE]
        piece.copy_(total.div_(size))
    yield [comm.Iallgatherv(MPI.IN_PLACE, (_memory(tensor), counts, starts[:-1], MPI.INT16_T))]


def _broadcast(comm: "MPI.Intracomm", tensor: Tensor, source: int) -> Steps:
    from mpi4py import MPI

    yield [comm.Ibcast((_memory(tensor), MPI.BYTE), root=source)]


def _gather(comm: "MPI.Intracomm", data: bytes) -> Steps:
    """The bytes of all ranks: first how many they are, then themselves."""
    from mpi4py import MPI

    sizes = array("q", [0] * comm.size)
    yield [comm.Iallgather((array("q", [len(data)]), MPI.INT64_T), (sizes, MPI.INT64_T))]
    ends = list(accumulate(sizes))
    starts = [0, *ends[:-1]]
    everything = memoryview(bytearray(ends[-1]))
    yield [comm.Iallgatherv((data, MPI.BYTE), (everything, sizes.tolist(), starts, MPI.BYTE))]
    return [everything[start:end] for start, end in zip(starts, ends, strict=True)]


def _form(comm: "MPI.Intracomm", members: list[int]) -> Steps:
    """A communicator of some ranks. They meet by messages first: Create_group blocks, so nobody must be late for it."""
    first, *others = members
    nothing = bytearray(1)
    if comm.rank == first:
        yield [comm.Irecv(nothing, source=rank) for rank in others]
        yield [comm.Isend(nothing, dest=rank) for rank in others]
    else:
        yield [comm.Isend(nothing, dest=first)]
        yield [comm.Irecv(nothing, source=first)]
    return comm.Create_group(comm.group.Incl(members))


def _memory(tensor: Tensor) -> "MPI.buffer":
    """A tensor's memory, for any dtype; whoever hands it to MPI keeps the tensor."""
    from mpi4py import MPI

    assert tensor.is_contiguous(), "a collective on a tensor that is not contiguous"
    return MPI.buffer.fromaddress(tensor.data_ptr(), tensor.nbytes)
