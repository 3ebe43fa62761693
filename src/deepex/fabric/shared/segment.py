"""Memory that ranks of one host share: anonymous files, which leave no name that could outlive the ranks.

A file exists as long as a process has it open or mapped, so whatever kills the ranks, nothing is left in /dev/shm. A
peer maps it through `/proc/PID/fd/N`. It knows processes and bytes, and nothing of collectives.
"""

import mmap
import os
from contextlib import suppress
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

MADV_POPULATE_WRITE = 23  # Linux 5.14; Python's mmap has no name for it yet


class Location(NamedTuple):
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
    """Shared memory of this rank's own, zeros at first. It ends when nobody maps it any more.

    Arguments:
        num_bytes: its size.

    Attributes:
        location: where peers find its first byte.
    """

    location = Location(0, -1, 0)  # of what could not be made, and is dropped again

    def __new__(cls, num_bytes: int) -> Self:
        descriptor = os.memfd_create("deepex", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, num_bytes)
            segment = super().__new__(cls, descriptor, num_bytes)
        except BaseException:
            os.close(descriptor)
            raise
        segment.location = Location(os.fstat(descriptor).st_ino, descriptor, 0)
        return segment

    def __del__(self) -> None:
        if self.location.descriptor >= 0:
            self._release()

    def _release(self) -> None:
        """Give up what this process holds besides its mapping, which ends here."""
        os.close(self.location.descriptor)


def open_peer(process: int, location: Location) -> Memory:
    """A peer's segment, mapped here; OSError if it can't be, LookupError if another file is found in its place."""
    descriptor = os.open(f"/proc/{process}/fd/{location.descriptor}", os.O_RDWR | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if found.st_ino != location.inode:
            raise LookupError(f"process {process} is another one here than there")
        return Memory(descriptor, found.st_size)
    finally:
        os.close(descriptor)
