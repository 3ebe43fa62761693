"""Memory that ranks of one host share: anonymous files, which leave no name that could outlive the ranks.

A file exists as long as a process has it open or mapped, so whatever kills the ranks, nothing is left in /dev/shm. A
peer maps it through `/proc/PID/fd/N`. It knows processes and bytes, and nothing of collectives.
"""

import mmap
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

MADV_POPULATE_WRITE = 23  # Linux 5.14; Python's mmap has no name for it yet


class Place(NamedTuple):
    """Where bytes lie: in which file, open under which number in its owner's process, and from which byte on."""

    inode: int
    descriptor: int
    start: int


class Memory(mmap.mmap):
    """A file of shared memory as this process sees it."""

    def array(self) -> NDArray[np.uint8]:
        """All of its bytes; the mapping lives as long as any view of them."""
        return np.frombuffer(self, np.uint8)

    def tensor(self) -> Tensor:
        """All of it as numbers; the mapping lives as long as any view of them."""
        return torch.frombuffer(self, dtype=torch.float32)

    def enlarge_pages(self) -> None:
        with suppress(OSError):  # a kernel without large pages for files
            self.madvise(mmap.MADV_HUGEPAGE)

    def populate(self) -> None:
        """Bring all pages in place, here rather than when a step first touches them."""
        with suppress(OSError):  # an older kernel
            self.madvise(MADV_POPULATE_WRITE)


class Segment(Memory):
    """Shared memory of this rank's own, zeros at first. It ends when nobody maps it any more."""

    place: Place

    @classmethod
    def new(cls, num_bytes: int) -> Self:
        descriptor = os.memfd_create("deepex", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, num_bytes)
        segment = cls(descriptor, num_bytes)
        segment.place = Place(os.fstat(descriptor).st_ino, descriptor, 0)
        return segment

    def __del__(self) -> None:
        os.close(self.place.descriptor)


class Block(Segment):
    """A segment that ends with the last view of it here, though peers may still map it."""

    owner: int
    address: int
    blocks: dict[int, Place]

    def enlist(self, blocks: dict[int, Place], address: int) -> None:
        """Stand in a list by address, for as long as the address is this block's."""
        self.owner, self.address, self.blocks = os.getpid(), address, blocks
        blocks[address] = self.place

    def __del__(self) -> None:
        del self.blocks[self.address]
        if os.getpid() == self.owner:  # a fork has only a copy to drop
            self.madvise(mmap.MADV_REMOVE)  # truncating it would kill a peer that still works on it
        super().__del__()


def open_peer(process: int, place: Place) -> Memory:
    """A peer's segment, mapped here; OSError if it can't be, LookupError if another file is found in its place."""
    descriptor = os.open(f"/proc/{process}/fd/{place.descriptor}", os.O_RDWR | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if found.st_ino != place.inode:
            raise LookupError(f"process {process} is another one here than there")
        return Memory(descriptor, found.st_size)
    finally:
        os.close(descriptor)


class Commons:
    """All blocks that a rank shares: its own by their address, and its peers' as mapped here.

    A peer's block is mapped when a collective first uses it. When the peer drops it its memory is free at once, and
    the addresses here are when another block of that peer is mapped.

    Arguments:
        processes: the process of each rank.
    """

    def __init__(self, processes: Mapping[int, int]) -> None:
        self._processes = processes
        self._own: dict[int, Place] = {}
        self._mapped: dict[int, dict[Place, NDArray[np.uint8]]] = {}  # by rank, and where their first byte lies

    def empty(self, numel: int) -> Tensor:
        """A block of zeros that peers can reach."""
        if numel == 0:
            return torch.zeros(0)
        memory = Block.new(4 * numel)
        memory.enlarge_pages()
        memory.populate()
        block = memory.tensor()
        memory.enlist(self._own, block.data_ptr())
        return block

    def locate(self, tensor: Tensor) -> Place | None:
        """Where in this rank's blocks a tensor lies, if it does."""
        address = tensor.untyped_storage().data_ptr()
        found = self._own.get(address)
        return None if found is None else found._replace(start=tensor.data_ptr() - address)

    def view(self, rank: int, place: Place, num_bytes: int) -> NDArray[np.uint8]:
        """Bytes in a block of a peer."""
        mapped, whole = self._mapped.setdefault(rank, {}), place._replace(start=0)
        found = mapped.get(whole)
        if found is None:
            self._forget(rank)
            memory = open_peer(self._processes[rank], whole)
            memory.enlarge_pages()  # but not populate them: a rank needs those of its share alone
            found = mapped[whole] = memory.array()
        return found[place.start : place.start + num_bytes]

    def _forget(self, rank: int) -> None:
        """Unmap what a peer has dropped."""
        mapped = self._mapped[rank]
        for place in list(mapped):
            with suppress(FileNotFoundError):
                if Path(f"/proc/{self._processes[rank]}/fd/{place.descriptor}").stat().st_ino == place.inode:
                    continue
            mapped.pop(place, None)
