"""Prefetching: a thread fills batch buffers ahead of whoever takes them. It knows no source and no plan."""

from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

K = TypeVar("K")
B = TypeVar("B")


class Prefetcher(Generic[K, B]):
    """Buffers in the order of `keys`, each filled by `fill(key, buffer)` on a thread of its own.

    The two buffers that were handed out last stay intact; the others are filled meanwhile. The thread ends with the
    keys. An error in `fill` is raised where its buffer would have been taken.
    """

    def __init__(self, fill: Callable[[K, B], None], buffers: list[B], keys: Iterator[K]) -> None:
        self._fill, self._keys = fill, keys
        self._free: SimpleQueue[B | None] = SimpleQueue()
        self._ready: SimpleQueue[B | BaseException] = SimpleQueue()
        self._out: deque[B] = deque()
        for buffer in buffers:
            self._free.put(buffer)
        self._thread = Thread(target=self._run, name="deepex-feed", daemon=True)
        self._thread.start()

    def take(self) -> B:
        """The next buffer, waited for if it must be."""
        while len(self._out) > 1:
            self._free.put(self._out.popleft())
        buffer = self._ready.get()
        if isinstance(buffer, BaseException):
            raise buffer
        self._out.append(buffer)
        return buffer

    def close(self) -> None:
        """End the thread; buffers are not touched afterwards."""
        self._free.put(None)
        while self._thread.is_alive():
            self._thread.join(0.1)
            self._free.put(None)

    def _run(self) -> None:
        for key in self._keys:
            buffer = self._free.get()
            if buffer is None:
                return
            try:
                self._fill(key, buffer)
            except BaseException as error:  # noqa: BLE001  # it is raised on the thread that takes the buffer
                self._ready.put(error)
                return
            self._ready.put(buffer)
