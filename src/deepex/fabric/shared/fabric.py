"""The fabric of ranks on one host: they average in memory that all of them see, in pieces that stay in the cache.

It knows processes and shared memory, and nothing of networks.
"""

import json
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TypeVar, cast

import torch
from torch import Tensor
from torch._C._distributed_c10d import Store  # torch.distributed leaves it out of its types

from deepex.errors import ConfigError, PeerError, TrainingError
from deepex.fabric.fabric import Done, Fabric, Work
from deepex.fabric.heartbeat import peer_error
from deepex.fabric.rendezvous import Meeting
from deepex.fabric.shared.average import Bytes, average, share
from deepex.fabric.shared.barrier import Errand, Patience, Turnstile
from deepex.fabric.shared.peer_slot import BROADCAST, GATHER, MEAN, VERBS, WINDOW_BYTES, Booth, Neighbours, Notice
from deepex.fabric.shared.segment import Memory, Place, Segment, open_peer
from deepex.fabric.traffic import Meter

V = TypeVar("V")

SMALL_BYTES = 2**14  # every rank averages so little itself: that takes less than waiting for others to do a share


class SharedFabric:
    """Collectives through shared memory, among ranks of one host.

    A mean is x <- (x_0 + x_1 + ... + x_{P-1}) / P, added in this order whoever adds, so that its bits are the same on
    all ranks and however a block is cut. Rank r computes share r of it and writes it to all. Nothing is copied where
    the tensors of all ranks lie in blocks of `empty`; others pass through a window. Work is done when it is waited for,
    and each must be. A block's memory is free when its rank drops it.

    Arguments:
        meeting: where all ranks have met.
        ranks: those that belong to this fabric, all ranks unless given; called by just those.
    """

    name = "shared"
    overlaps = False

    def __init__(self, meeting: Meeting, ranks: Sequence[int] | None = None) -> None:
        self._enlist(meeting, Meter(), Neighbours(), range(meeting.world.size) if ranks is None else ranks)
        self._check_hosts()
        near, segment = self._near, Booth.segment()
        mine = {"process": os.getpid(), "cores": sorted(os.sched_getaffinity(0)), "place": segment.place}
        told = [json.loads(text) for text in self._exchange("process", json.dumps(mine))]
        processes = {rank: int(each["process"]) for rank, each in zip(self.ranks, told, strict=True)}
        near.meet(processes, num_cores=len({core for each in told for core in each["cores"]}))
        problem = ""
        try:
            self._enter(segment, [Place(*each["place"]) for each in told])
        except (OSError, LookupError) as error:
            problem = f"{meeting.world} can't open the memory of its peers ({error})"
        if problems := [text for text in self._exchange("problem", problem) if text]:
            raise ConfigError(
                f"fabric shared: {problems[0]}. It joins ranks of one user that see each other's processes in /proc. "
                "Start them in one container, or use --fabric torch."
            )
        for process in near.processes.values():
            near.watch.add(process)

    def _enlist(self, meeting: Meeting, meter: Meter, near: Neighbours, ranks: Sequence[int]) -> None:
        self.meeting: Meeting | None = meeting
        self.pulse, self.meter, self.ranks = meeting.pulse, meter, ranks
        self._meeting, self._near, self._is_part = meeting, near, False
        self._failure: PeerError | None = None
        self.world = replace(meeting.world, rank=ranks.index(meeting.world.rank), size=len(ranks))

    def _check_hosts(self) -> None:
        """All ranks must be on one host, by its name and since the same start of it, and compute on its processors."""
        file = Path("/proc/sys/kernel/random/boot_id")
        boot = file.read_text() if file.exists() else ""  # some containers have none
        told = [json.loads(text) for text in self._exchange("host", json.dumps([self.world.host, boot]))]
        self._near.hosts.update({rank: host for rank, (host, _) in zip(self.ranks, told, strict=True)})
        num_hosts = len({tuple(each) for each in told})
        if num_hosts > 1 or self.world.device != "cpu":
            names = ", ".join(sorted(set(self._near.hosts.values())))
            raise ConfigError(
                f"fabric shared: given ranks on {num_hosts} hosts ({names}) and device {self.world.device}; it joins "
                "ranks of one host that compute on its processors. Use --fabric torch, or --sync hierarchical, which "
                "is shared inside each host."
            )

    def _enter(self, segment: Segment, places: Sequence[Place]) -> None:
        """Map the booths of all ranks; from here on they can talk."""
        processes, own = self._near.processes, self.world.rank
        memories: list[Memory] = [
            segment if rank == own else open_peer(processes[self.ranks[rank]], place)
            for rank, place in enumerate(places)
        ]
        self._booths = [Booth(memory) for memory in memories]
        self._turnstile = Turnstile([booth.counter for booth in self._booths], own)
        self._near.turnstiles.add(self._turnstile)

    def empty(self, numel: int) -> Tensor:
        return self._near.commons.empty(numel)

    def common(self, numel: int) -> Tensor:
        """One float32 block of zeros, the same memory on all ranks, which write to it in no order. Collective."""
        segment = Segment.new(4 * max(1, numel)) if self.world.is_first else None
        place = self.gather(None if segment is None else segment.place)[0]
        assert place is not None, "the first rank has told its own"
        first = self._near.processes[self.ranks[0]]
        try:
            memory = open_peer(first, place) if segment is None else segment
        except (OSError, LookupError) as error:
            raise self._unreachable("sharing a block", error) from error
        memory.enlarge_pages()
        self.gather(None)  # from here on the first rank may drop its own
        return memory.tensor()[:numel]

    def mean_(self, tensor: Tensor) -> Work:
        if not tensor.is_floating_point():
            raise TypeError(f"the mean of a tensor of {tensor.dtype}: it must be floating")
        return self._begin(tensor, MEAN, 0, partial(self._mean, tensor.dtype))

    def broadcast_(self, tensor: Tensor, source: int) -> Work:
        return self._begin(tensor, BROADCAST, source, self._broadcast)

    def gather(self, value: V) -> list[V]:
        if self.world.size == 1:
            return [value]
        parts = [bytearray() for _ in self.ranks]
        errand = self._queue(self._gather(pickle.dumps(value, pickle.HIGHEST_PROTOCOL), parts), VERBS[GATHER])
        self._finish(errand)
        return [cast(V, pickle.loads(part)) for part in parts]

    def group(self, ranks: Sequence[int]) -> Fabric:
        part = object.__new__(SharedFabric)
        part._enlist(self._meeting, self.meter, self._near, [self.ranks[rank] for rank in ranks])
        part._is_part = True
        segment = Booth.segment()
        told = part._exchange("group", json.dumps(segment.place))
        try:
            part._enter(segment, [Place(*json.loads(text)) for text in told])
        except (OSError, LookupError) as error:
            raise self._unreachable("forming a group", error) from error
        part.gather(None)  # nobody drops its booth before all have opened it
        return part

    def close(self) -> None:
        """Leave, and all groups of it too. Peers that still wait get an error, not silence."""
        if self._is_part:
            self._turnstile.leave()
        else:
            self._near.leave()

    def _exchange(self, topic: str, text: str) -> list[str]:
        """Every rank's text, in rank order, through the meeting's store."""
        own = self._meeting.world.rank
        store = self._meeting.store(f"shared/{topic}/{','.join(map(str, self.ranks))}")
        turn = store.add(f"turns/{own}", 1)  # the same ranks may form a group again
        store.set(f"{turn}/{own}", text)
        keys = [f"{turn}/{rank}" for rank in self.ranks]
        patience = Patience(is_crowded=True)
        while not store.check(keys):
            if self._near.agendas.own.advance():
                patience.restart()
            elif waited := patience.pause():
                self._complain("meeting", partial(_absent, store, keys), list, waited)
        return [store.get(key).decode() for key in keys]

    def _begin(self, tensor: Tensor, verb: int, source: int, steps: Callable[[Bytes, Notice], Iterator[None]]) -> Work:
        if not tensor.is_contiguous():
            raise ValueError(f"{VERBS[verb]} of a tensor of shape {tuple(tensor.shape)} that is not contiguous")
        if self.world.size == 1:
            return Done()
        flat = tensor.detach().view(-1).view(torch.uint8).numpy()
        notice = Notice.of(verb, tensor, source, self._near.commons.locate(tensor))
        return _Pending(self, self._queue(steps(flat, notice), VERBS[verb]), tensor.nbytes)

    def _queue(self, steps: Iterator[None], verb: str) -> Errand:
        doors = self._turnstile
        return self._near.agendas.own.add(doors, steps, partial(self._complain, verb, doors.missing, doors.left))

    def _finish(self, errand: Errand) -> None:
        if self._failure is not None:
            raise self._failure
        errand.finish()

    def _mean(self, dtype: torch.dtype, flat: Bytes, notice: Notice) -> Iterator[None]:
        """The steps of a mean: all come, each writes its share to all, all have."""
        rank, size, windows, is_small = self.world.rank, self.world.size, self._windows(), len(flat) <= SMALL_BYTES
        if is_small:
            windows[rank][: len(flat)] = flat
        yield from self._come(notice)
        notices = self._read(notice)
        if is_small:
            average([window[: len(flat)] for window in windows], [flat], dtype)
        elif all(each.inode for each in notices):
            part = share(len(flat), rank, size)
            buffers = [self._reach(other, each, flat)[part] for other, each in enumerate(notices)]
            average(buffers, buffers, dtype)
            yield from self._come()
        else:
            yield from self._mean_staged(dtype, flat)

    def _mean_staged(self, dtype: torch.dtype, flat: Bytes) -> Iterator[None]:
        """The steps of a mean of what lies anywhere: each shows others their shares of a piece, and copies theirs."""
        rank, size = self.world.rank, self.world.size
        others = [other for other in range(size) if other != rank]
        for start in range(0, len(flat), WINDOW_BYTES):
            piece = flat[start : start + WINDOW_BYTES]
            shares = [share(len(piece), other, size) for other in range(size)]
            windows = self._windows()
            for other in others:
                windows[rank][shares[other]] = piece[shares[other]]
            yield from self._come()
            results, own = self._windows(), shares[rank]
            buffers = [piece[own] if at == rank else window[own] for at, window in enumerate(windows)]
            average(buffers, [results[rank][own], piece[own]], dtype)
            yield from self._come()
            for other in others:
                piece[shares[other]] = results[other][shares[other]]

    def _broadcast(self, flat: Bytes, notice: Notice) -> Iterator[None]:
        """The steps of a broadcast: all come, all but the source copy."""
        source, is_source = notice.source, notice.source == self.world.rank
        for start in range(0, max(1, len(flat)), WINDOW_BYTES):
            piece, window = flat[start : start + WINDOW_BYTES], self._windows()[source]
            if is_source and not notice.inode:
                window[: len(piece)] = piece
            yield from self._come(None if start else notice)
            if not start and (shown := self._read(notice)[source]).inode:
                if not is_source:
                    flat[:] = self._reach(source, shown, flat)
                yield from self._come()
                return
            if not is_source:
                piece[:] = window[: len(piece)]

    def _gather(self, payload: bytes, parts: Sequence[bytearray]) -> Iterator[None]:
        """The steps of a gather: all show their bytes piece by piece, all copy them."""
        notice, lengths = Notice(GATHER, 0, len(payload), 0, 0, 0, 0), [1]
        start = 0
        while start < max(lengths):
            chunk, windows = payload[start : start + WINDOW_BYTES], self._windows()
            windows[self.world.rank][: len(chunk)].data[:] = chunk
            yield from self._come(None if start else notice)
            if not start:
                lengths = [each.numel for each in self._read(notice)]
            for part, window, length in zip(parts, windows, lengths, strict=True):
                part += window[: max(0, min(WINDOW_BYTES, length - start))].data
            start += WINDOW_BYTES

    def _come(self, notice: Notice | None = None) -> Iterator[None]:
        """One step ends here, and the next begins when all have come."""
        if notice is not None:
            self._booths[self.world.rank].write(notice, self._turnstile.count + 1)
        self._turnstile.come()
        yield

    def _windows(self) -> list[Bytes]:
        """The windows to write to before the next coming, and to read between that and the one after."""
        return [booth.window(self._turnstile.count + 1) for booth in self._booths]

    def _reach(self, rank: int, shown: Notice, flat: Bytes) -> Bytes:
        """The tensor of a rank, in its memory."""
        if rank == self.world.rank:
            return flat
        try:
            return self._near.commons.view(self.ranks[rank], shown.place, len(flat))
        except (OSError, LookupError) as error:
            raise self._unreachable(VERBS[shown.verb], error) from error

    def _unreachable(self, verb: str, error: Exception) -> PeerError:
        """A peer that has come has ended before its memory could be opened."""
        return peer_error(self.pulse, self._meeting.world, verb, detail=f"its memory can't be opened: {error}")

    def _read(self, own: Notice) -> list[Notice]:
        """The notices of all ranks; an error, on all of them, if they are not of the same collective."""
        notices = [booth.read(self._turnstile.count) for booth in self._booths]
        if any(each.what != own.what for each in notices):
            told = "; ".join(f"rank {rank}: {each}" for rank, each in zip(self.ranks, notices, strict=True))
            raise TrainingError(
                f"{self._meeting.world}: ranks called different collectives: {told}. Every rank must call the same "
                "ones in the same order, with tensors of the same size and type."
            )
        return notices

    def _complain(
        self, verb: str, missing: Callable[[], list[int]], leavers: Callable[[], list[int]], waited: float
    ) -> None:
        """Raise if a rank that is missing has died or left, or the time is up."""
        near, timeout = self._near, self._meeting.timeout_seconds
        dead = {at for at in missing() if near.is_dead(self.ranks[at])}
        left = set(leavers())
        late = missing()  # by now: one that has come before it ended is not missing
        names = {at: f"rank {self.ranks[at]} on {near.hosts.get(self.ranks[at], 'its host')}" for at in late}
        if fallen := [at for at in late if at in dead - left]:
            ended = "is gone: process {} has ended without a word, killed perhaps by a signal"
            who = "; ".join(f"{names[at]} {ended.format(near.processes[self.ranks[at]])}" for at in fallen)
            self.pulse.lost_ranks.update(self.ranks[at] for at in fallen)
        elif any(at in left for at in late):
            said = self.pulse.blame()
            who = said if self.pulse.lost else "; ".join(f"{names[at]} has left" for at in late if at in left)
        elif waited > timeout and late:
            who = self.pulse.blame()
        else:
            return
        detail = f"a collective waits {timeout:g} s for a peer; missing: {', '.join(names.values())}"
        self._failure = peer_error(self.pulse, self._meeting.world, verb, detail=detail, who=who)
        raise self._failure


def _absent(store: Store, keys: Sequence[str]) -> list[int]:
    return [at for at, key in enumerate(keys) if not store.check([key])]


class _Pending:
    """Work that is done when it is waited for."""

    def __init__(self, fabric: SharedFabric, errand: Errand, num_bytes: int) -> None:
        self._fabric, self._errand, self._num_bytes = fabric, errand, num_bytes
        self._is_over = False

    def wait(self) -> None:
        if self._is_over:
            return
        begun = perf_counter()
        self._fabric._finish(self._errand)
        self._is_over = True
        self._fabric.meter.add(self._num_bytes, self._errand.busy_seconds, perf_counter() - begun)
