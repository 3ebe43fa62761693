"""Rows of an array copied into a buffer, in any order; large ones by two threads, as one does not fill the bus."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

THREADS = 2
LARGE_BYTES = 4 << 20  # below this, handing a part to another thread costs more than it saves

_threads: dict[int, ThreadPoolExecutor] = {}  # by process: threads do not survive a fork


def take_rows(array: NDArray[Any], indices: NDArray[np.int64], out: NDArray[Any]) -> None:
    """Copy `array[indices]` into `out`.

    >>> out = np.empty(2)
    >>> take_rows(np.array([5.0, 6.0, 7.0]), np.array([2, 0]), out)
    >>> out.tolist()
    [7.0, 5.0]
    """
    if out.nbytes < LARGE_BYTES or len(indices) < THREADS:
        np.take(array, indices, axis=0, out=out, mode="clip")  # with `clip`, NumPy writes straight into the buffer
        return
    middle = len(indices) // 2
    other = _pool().submit(np.take, array, indices[middle:], axis=0, out=out[middle:], mode="clip")
    np.take(array, indices[:middle], axis=0, out=out[:middle], mode="clip")
    other.result()


def _pool() -> ThreadPoolExecutor:
    process = os.getpid()
    if process not in _threads:
        _threads.clear()
        _threads[process] = ThreadPoolExecutor(THREADS - 1, thread_name_prefix="deepex-gather")
    return _threads[process]
