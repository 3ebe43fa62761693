"""What a rank shows its peers in shared memory: how far it is, what it is about to do, and bytes for them to read.

It knows one rank's slot, and nothing of the others or of when they look.
"""

import struct
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deepex.fabric.shared.barrier import COUNTER_WORDS
from deepex.fabric.shared.segment import Location, Memory, Segment

MEAN, BROADCAST, GATHER = 0, 1, 2
COLLECTIVES = ("all-reduce", "broadcast", "gather")  # the same in words
DTYPES = sorted({kind for kind in vars(torch).values() if isinstance(kind, torch.dtype)}, key=str)
DTYPE_NUMBERS = {dtype: number for number, dtype in enumerate(DTYPES)}

WINDOW_BYTES = 2**21  # of a tensor at a time, where it does not lie in shared memory
CONTROL_BYTES = 4096  # before the windows: the counter and two headers
HEADER = struct.Struct("=7q")


class CallHeader(NamedTuple):
    """What a rank is about to do: which collective, with which tensor, and where that lies; inode 0 if anywhere."""

    collective: int
    dtype: int
    numel: int
    source: int
    inode: int
    descriptor: int
    start: int

    @classmethod
    def of(cls, collective: int, tensor: Tensor, source: int, location: Location | None) -> Self:
        return cls(collective, DTYPE_NUMBERS[tensor.dtype], tensor.numel(), source, *(location or Location(0, 0, 0)))

    @property
    def location(self) -> Location:
        return Location(self.inode, self.descriptor, self.start)

    @property
    def signature(self) -> tuple[int, ...]:
        """What must be the same on all ranks."""
        return self[:4] if self.collective != GATHER else self[:1]

    def __str__(self) -> str:
        if self.collective == GATHER:
            return COLLECTIVES[GATHER]
        source = f" from {self.source}" if self.collective == BROADCAST else ""
        dtype = str(DTYPES[self.dtype]).removeprefix("torch.")
        return f"{COLLECTIVES[self.collective]}{source} of {self.numel} {dtype}"


class PeerSlot:
    """A rank's counter, its header, and a window for bytes that do not lie in shared memory.

    Header and window are there twice, and used in turns. They are written before a rank arrives for the n-th time and
    read before it arrives for the next: so when all have arrived n + 1 times, those of n are free.

    Arguments:
        memory: of this rank's own (`segment`), or of a peer.
    """

    def __init__(self, memory: Memory) -> None:
        self.counter = memoryview(memory).cast("q")[:COUNTER_WORDS]  # its items cost half of what an array's do
        self._memory = memory
        whole: NDArray[np.uint8] = memory.array()
        self._windows = [whole[CONTROL_BYTES + turn * WINDOW_BYTES :][:WINDOW_BYTES] for turn in range(2)]

    @staticmethod
    def segment() -> Segment:
        """Memory for a slot of this rank; a window takes none before it is used."""
        return Segment(CONTROL_BYTES + 2 * WINDOW_BYTES)

    def window(self, count: int) -> NDArray[np.uint8]:
        """The window that is written before the arrival of that number."""
        return self._windows[count % 2]

    def write(self, header: CallHeader, count: int) -> None:
        """Show a header with the arrival of that number."""
        HEADER.pack_into(self._memory, 8 * COUNTER_WORDS * (1 + count % 2), *header)

    def read(self, count: int) -> CallHeader:
        return CallHeader(*HEADER.unpack_from(self._memory, 8 * COUNTER_WORDS * (1 + count % 2)))
