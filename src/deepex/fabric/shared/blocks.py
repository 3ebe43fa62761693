"""The blocks of numbers that ranks of one host share: a rank's own by address, its peers' as mapped here.

It knows where tensors lie, and nothing of what is done with them.
"""

import mmap
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deepex.fabric.shared.segment import Location, Segment, open_peer


class Block(Segment):
    """A segment that ends with the last view of it here, though peers may still map it.

    Arguments:
        num_bytes: its size.
        locations: where it stands by its address, for as long as the address is this block's.
    """

    _owner: int
    _address: int
    _locations: dict[int, Location]

    def __new__(cls, num_bytes: int, locations: dict[int, Location]) -> Self:
        block = super().__new__(cls, num_bytes)
        block._owner, block._address, block._locations = os.getpid(), block.tensor().data_ptr(), locations
        locations[block._address] = block.location
        return block

    def _release(self) -> None:
        del self._locations[self._address]
        if os.getpid() == self._owner:  # a fork has only a copy to drop
            self.madvise(mmap.MADV_REMOVE)  # truncating it would kill a peer that still works on it
        super()._release()


class SharedBlocks:
    """All blocks that a rank shares.

    A peer's block is mapped when a collective first uses it. When the peer drops it its memory is free at once, and
    the addresses here are when another block of that peer is mapped.

    Arguments:
        processes: the process of each rank.
    """

    def __init__(self, processes: Mapping[int, int]) -> None:
        self._processes = processes
        self._own: dict[int, Location] = {}
        self._mapped: dict[int, dict[Location, NDArray[np.uint8]]] = {}  # by rank, and where their first byte lies

    def empty(self, numel: int) -> Tensor:
        """A block of zeros that peers can reach."""
        if numel == 0:
            return torch.zeros(0)
        memory = Block(4 * numel, self._own)
        memory.enlarge_pages()
        memory.populate()
        return memory.tensor()

    def locate(self, tensor: Tensor) -> Location | None:
        """Where in this rank's blocks a tensor lies, if it does."""
        address = tensor.untyped_storage().data_ptr()
        found = self._own.get(address)
        return None if found is None else found._replace(start=tensor.data_ptr() - address)

    def view(self, rank: int, location: Location, num_bytes: int) -> NDArray[np.uint8]:
        """Bytes in a block of a peer; OSError or LookupError if it is there no more."""
        mapped, whole = self._mapped.setdefault(rank, {}), location._replace(start=0)
        found = mapped.get(whole)
        if found is None:
            self._unmap_dropped(rank)
            memory = open_peer(self._processes[rank], whole)
            memory.enlarge_pages()  # but not populate them: a rank needs those of its share alone
            found = mapped[whole] = memory.array()
        return found[location.start : location.start + num_bytes]

    def _unmap_dropped(self, rank: int) -> None:
        """Unmap what a peer has dropped."""
        mapped = self._mapped[rank]
        for location in list(mapped):
            with suppress(FileNotFoundError):
                if Path(f"/proc/{self._processes[rank]}/fd/{location.descriptor}").stat().st_ino == location.inode:
                    continue
            mapped.pop(location, None)
