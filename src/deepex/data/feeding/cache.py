"""Cache: samples that were read once and stay in memory, as many as there is room for."""

import os
from pathlib import Path

import numpy as np

from deepex.data.feeding.gather import take_rows
from deepex.data.source import ArraySource, Indices, Source, Subset, allocate, as_array
from deepex.sample import Batch

RESERVE_BYTES = 192 << 20  # what a run may still grow by: parts of files that are mapped, evaluation, a checkpoint


class Cache:
    """A source that remembers. Samples are cached as they come, unprepared, until `num_bytes` are full.

    >>> import torch
    >>> source = Cache(ArraySource({"x": torch.arange(10.0)}), num_bytes=16)
    >>> source.read(range(10), {"x": torch.empty(10)})
    >>> source.num_cached
    4
    """

    def __init__(self, source: Source, num_bytes: int, num_needed: int | None = None) -> None:
        self.source, self.spec = source, source.spec
        needed = len(source) if num_needed is None else num_needed
        self.capacity = min(max(0, num_bytes) // max(1, source.spec.num_bytes), needed)
        self.num_cached = 0
        self._places = np.full(len(source), -1, dtype=np.int64)
        # NumPy asks for huge pages, torch does not: rows in any order cost fewer faults and look-ups of pages.
        self._memory = {
            name: np.empty((self.capacity, *array.shape[1:]), dtype=array.dtype)
            for name, array in ((name, as_array(tensor)) for name, tensor in allocate(source.spec, 0).items())
        }

    @property
    def num_bytes(self) -> int:
        """Memory that it takes when it is full."""
        return self.capacity * self.spec.num_bytes

    def __len__(self) -> int:
        return len(self.source)

    def name(self, index: int) -> str:
        return self.source.name(index)

    def read(self, indices: Indices, out: Batch) -> None:
        chosen = np.asarray(indices, dtype=np.int64)
        places = self._places[chosen]
        missing = np.flatnonzero(places < 0)
        if len(missing) == len(chosen):
            self.source.read(chosen, out)
            self._store(chosen, out)
            return
        for name, buffer in out.items():
            take_rows(self._memory[name], places, as_array(buffer)[: len(chosen)])  # a place of -1 is overwritten below
        if len(missing):
            fresh = allocate(self.spec, len(missing))
            self.source.read(chosen[missing], fresh)
            for name, buffer in out.items():
                as_array(buffer)[missing] = as_array(fresh[name])
            self._store(chosen[missing], fresh)

    def _store(self, indices: "np.ndarray[tuple[int], np.dtype[np.int64]]", batch: Batch) -> None:
        """Cache samples that just came, while there is room; a batch without all fields is not cached."""
        room = self.capacity - self.num_cached
        if not room or set(batch) != set(self._memory):
            return
        fresh, rows = np.unique(indices, return_index=True)
        fresh, rows = fresh[:room], rows[:room]
        places = np.arange(self.num_cached, self.num_cached + len(fresh))
        for name, memory in self._memory.items():
            memory[self.num_cached : self.num_cached + len(fresh)] = as_array(batch[name])[rows]
        self._places[fresh] = places
        self.num_cached += len(fresh)


def stands_in_memory(source: Source) -> bool:
    """Whether a source has its samples in memory anyway."""
    while isinstance(source, Subset):
        source = source.source
    return isinstance(source, ArraySource)


def room_for_samples(memory_gib: float | None, ranks_here: int) -> int:
    """Bytes that a rank may cache samples in: what it has not used yet of what it may use in all.

    None stands for half of what is free on this machine, shared among the ranks here.
    """
    if memory_gib is None:
        return free_bytes() // 2 // ranks_here
    return max(0, int(memory_gib * 2**30) - used_bytes() - RESERVE_BYTES)


def used_bytes() -> int:
    """The most memory that this process has had at any time."""
    return _kilobytes("/proc/self/status", "VmHWM")


def free_bytes() -> int:
    """Memory that is free here, and allowed: a scheduler may give a job less than the machine has."""
    free = _kilobytes("/proc/meminfo", "MemAvailable")
    try:
        group = Path("/proc/self/cgroup").read_text().rpartition(":")[2].strip()
        folder = Path("/sys/fs/cgroup") / group.lstrip("/")
        limit = (folder / "memory.max").read_text().strip()
        used = int((folder / "memory.current").read_text())
    except (OSError, ValueError):
        return free
    return free if limit == "max" else max(0, min(free, int(limit) - used))


def _kilobytes(file: str, key: str) -> int:
    """A line such as `VmHWM: 12 kB` of a file of the kernel's, in bytes; without it, what the machine has in all."""
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        lines = []
    found = [line.split()[1] for line in lines if line.startswith(f"{key}:")]
    return 1024 * int(found[0]) if found else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
