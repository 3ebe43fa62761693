"""What a rank shows its peers in shared memory, and what it knows of them."""

import resource
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self
from weakref import WeakSet

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deepex.fabric.shared.barrier import LINE, Agendas, Turnstile, Watch
from deepex.fabric.shared.segment import Commons, Memory, Place, Segment

MEAN, BROADCAST, GATHER = 0, 1, 2
VERBS = ("all-reduce", "broadcast", "gather")
DTYPES = sorted({kind for kind in vars(torch).values() if isinstance(kind, torch.dtype)}, key=str)
NUMBERS = {dtype: number for number, dtype in enumerate(DTYPES)}

WINDOW_BYTES = 2**21  # of a tensor at a time, where it does not lie in shared memory
WORDS_BYTES = 4096  # before the windows
NOTICE = struct.Struct("=7q")
FILES_PER_PEER = 16  # its process, its booth, its blocks and groups; with 64 ranks the usual 1,024 would be few


class Notice(NamedTuple):
    """What a rank is about to do: which collective, with which tensor, and where that lies; inode 0 if anywhere."""

    verb: int
    dtype: int
    numel: int
    source: int
    inode: int
    descriptor: int
    start: int

    @classmethod
    def of(cls, verb: int, tensor: Tensor, source: int, place: Place | None) -> Self:
        return cls(verb, NUMBERS[tensor.dtype], tensor.numel(), source, *(place or Place(0, 0, 0)))

    @property
    def place(self) -> Place:
        return Place(self.inode, self.descriptor, self.start)

    @property
    def what(self) -> tuple[int, ...]:
        """What must be the same on all ranks."""
        return self[:4] if self.verb != GATHER else self[:1]

    def __str__(self) -> str:
        if self.verb == GATHER:
            return VERBS[GATHER]
        source = f" from {self.source}" if self.verb == BROADCAST else ""
        return f"{VERBS[self.verb]}{source} of {self.numel} {str(DTYPES[self.dtype]).removeprefix('torch.')}"


class Booth:
    """A rank's counter, its notice, and a window for bytes that do not lie in shared memory.

    Notice and window are there twice, and used in turns. They are written before a rank comes for the n-th time and
    read before it comes for the next: so when all have come n + 1 times, those of n are free.
    """

    def __init__(self, memory: Memory) -> None:
        self.counter = memoryview(memory).cast("q")[:LINE]  # its items cost half of what an array's do
        self._memory = memory
        whole: NDArray[np.uint8] = memory.array()
        self._windows = [whole[WORDS_BYTES + turn * WINDOW_BYTES :][:WINDOW_BYTES] for turn in range(2)]

    @staticmethod
    def segment() -> Segment:
        """Memory for a booth of this rank; a window takes none before it is used."""
        return Segment.new(WORDS_BYTES + 2 * WINDOW_BYTES)

    def window(self, count: int) -> NDArray[np.uint8]:
        return self._windows[count % 2]

    def write(self, notice: Notice, count: int) -> None:
        NOTICE.pack_into(self._memory, 8 * LINE * (1 + count % 2), *notice)

    def read(self, count: int) -> Notice:
        return Notice(*NOTICE.unpack_from(self._memory, 8 * LINE * (1 + count % 2)))


@dataclass
class Neighbours:
    """What all groups of a fabric have in common; ranks by their number among all."""

    hosts: dict[int, str] = field(default_factory=dict)
    processes: dict[int, int] = field(default_factory=dict)
    agendas: Agendas = field(default_factory=lambda: Agendas(is_crowded=True))
    watch: Watch = field(default_factory=Watch)
    turnstiles: WeakSet[Turnstile] = field(default_factory=WeakSet)

    def __post_init__(self) -> None:
        self.commons = Commons(self.processes)

    def meet(self, processes: Mapping[int, int], *, num_cores: int) -> None:
        """Learn which processes the ranks are, and on how many cores they run together."""
        self.processes.update(processes)
        self.agendas = Agendas(is_crowded=num_cores < len(processes))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            wanted = soft + FILES_PER_PEER * len(processes)
            most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))

    def is_dead(self, rank: int) -> bool:
        return rank in self.processes and self.watch.is_dead(self.processes[rank])

    def leave(self) -> None:
        for turnstile in self.turnstiles:
            turnstile.leave()
        self.watch.close()
