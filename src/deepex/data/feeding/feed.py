"""Feed: the batches of a plan, read ahead of the step that needs them, into buffers that are allocated once.

It knows sources, plans and what is done to samples on the way; it knows no model.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import Any

import torch

from deepex.data.feeding.cache import Cache, stands_in_memory
from deepex.data.feeding.plan import Batches, BatchPlan
from deepex.data.feeding.prefetch import Prefetcher
from deepex.data.feeding.prepare import Preparation, Preparer
from deepex.data.source import Source, allocate, draws
from deepex.sample import Batch

DEPTH = 4  # buffers: two that are handed out, two that are filled meanwhile
HAND_OVER_SECONDS = 100e-6  # what takes less is read by the step itself: passing it between threads costs as much
SLOW_BATCHES = 3  # so many in a row that take longer begin reading ahead

Key = tuple[int, int]
"""Epoch and step."""


@dataclass
class Buffer:
    """A batch in host memory, and its copy on a device with the event that says it is there.

    `size` is how many samples it holds: an epoch's last batch may be shorter than the buffer.
    """

    host: Batch
    device: Batch
    arrived: Any = None
    size: int = 0

    def filled(self) -> Batch:
        """The batch, where it is needed."""
        batch = self.host if self.arrived is None else self.device
        return {name: tensor if len(tensor) == self.size else tensor[: self.size] for name, tensor in batch.items()}


class Feed:
    """Batches by (epoch, step), so that a run can start in the middle of an epoch.

    Arguments:
        source: stored samples.
        plan: which of them make up which batch, to train or to evaluate.
        device: where batches are needed.
        preparation: conversions and augmentations on the way.
    """

    def __init__(
        self, source: Source, plan: BatchPlan, device: torch.device, preparation: Preparation | None = None
    ) -> None:
        self.source, self.plan, self.device = source, plan, device
        self.preparation = preparation or Preparation()
        self.cache: Cache | None = None
        self._preparer = Preparer(source, self.preparation)
        self._stream: Any = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._prefetcher: Prefetcher[Key, Buffer] | None = None
        self._last: tuple[Key, Buffer] | None = None
        self._slow = 0  # batches in a row that took longer to read than handing over takes
        self._epoch = -1
        self._indices: Batches = ()

    @property
    def buffer_bytes(self) -> int:
        """Memory that the buffers take, once the first batch was asked for."""
        return DEPTH * self.plan.batch * self._preparer.spec.num_bytes

    def start_cache(self, num_bytes: int) -> int:
        """Cache samples in memory from now on, as many as fit into `num_bytes`; returns the bytes they will take."""
        self.close()
        if stands_in_memory(self.source) or draws(self.source):
            return 0
        self.cache = Cache(self.source, num_bytes, len(self.plan.owned()))
        self._preparer = Preparer(self.cache, self.preparation)
        return self.cache.num_bytes

    def batch(self, epoch: int, step: int) -> Batch:
        """The batch of one step; valid until two steps later."""
        key = (epoch, step)
        if self._last is None or self._last[0] != key:
            is_next = self._last is not None and self.plan.following(*self._last[0]) == key
            self._last = (key, self._take(key, is_next))
        buffer = self._last[1]
        if buffer.arrived is not None:
            torch.cuda.current_stream(self.device).wait_event(buffer.arrived)
        return buffer.filled()

    def close(self) -> None:
        """End reading ahead; another batch begins it anew."""
        if self._prefetcher is not None:
            self._prefetcher.close()
        self._prefetcher = self._last = None

    def _take(self, key: Key, is_next: bool) -> Buffer:
        """A filled buffer: from the thread that reads ahead, or read here and now if that is quick."""
        if self._prefetcher is not None:
            if is_next:
                return self._prefetcher.take()
            self.close()
        elif is_next and self._slow == SLOW_BATCHES and not draws(self.source):
            held = self._last[1] if self._last else None
            self._prefetcher = Prefetcher(
                self._fill, [each for each in self._buffers if each is not held], self._keys(key)
            )
            return self._prefetcher.take()
        buffer = self._buffers[key[1] % 2]
        started = perf_counter()
        self._fill(key, buffer)
        if self._slow < SLOW_BATCHES:
            self._slow = self._slow + 1 if perf_counter() - started > HAND_OVER_SECONDS else 0
        return buffer

    def _keys(self, key: Key | None) -> Iterator[Key]:
        """A batch and all that are sure to be asked for after it."""
        while key is not None:
            yield key
            key = self.plan.following(*key)

    def _fill(self, key: Key, buffer: Buffer) -> None:
        """Read, augment and convert a batch, and send it to the device on a stream of its own."""
        epoch, step = key
        if epoch != self._epoch:
            self._epoch, self._indices = epoch, self.plan.indices(epoch)
        if buffer.arrived is not None:
            buffer.arrived.synchronize()  # the copy from this buffer before may still be under way
        chosen = self._indices[step]
        buffer.size = len(chosen)
        self._preparer.read(chosen, buffer.host, self.plan.drawn_for(epoch))
        if self._stream is not None:
            with torch.cuda.stream(self._stream):
                for name, tensor in buffer.host.items():
                    buffer.device[name].copy_(tensor, non_blocking=True)
                buffer.arrived = self._stream.record_event()

    @cached_property
    def _buffers(self) -> list[Buffer]:
        return [self._allocate() for _ in range(DEPTH)]

    def _allocate(self) -> Buffer:
        host = allocate(self._preparer.spec, self.plan.batch)
        if self.device.type != "cuda":
            return Buffer(host=host, device={})
        host = {name: tensor.pin_memory() for name, tensor in host.items()}
        return Buffer(
            host=host, device={name: torch.empty_like(tensor, device=self.device) for name, tensor in host.items()}
        )
