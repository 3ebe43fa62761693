"""The mean of several buffers, in pieces that stay in the cache between its passes.

It knows arrays, and nothing of whose they are.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Bytes = NDArray[np.uint8]
NATIVE = {torch.float32: np.float32, torch.float64: np.float64}
LINE_BYTES = 64

CACHE_BYTES = 2**20  # of all buffers together: with less calls cost more, and with more later passes go to memory
LEAST_BYTES = 2**15  # of one buffer


def average(buffers: Sequence[Bytes], into: Sequence[Bytes], dtype: torch.dtype) -> None:
    """Write (x_0 + x_1 + …) / P of P buffers, added in this order, into some arrays, which may be buffers themselves.

    The first of them is where the sum grows: it may be the first buffer, but no other. Numbers of 16 bits are added up
    in float32 and rounded once.
    """
    length = max(LEAST_BYTES, CACHE_BYTES // len(buffers)) // dtype.itemsize
    if dtype in NATIVE:
        with np.errstate(all="ignore"):  # infinity and NaN pass through
            kind = NATIVE[dtype]
            _average_native([each.view(kind) for each in buffers], [each.view(kind) for each in into], length)
    else:
        _average_narrow(
            [torch.from_numpy(each).view(dtype) for each in buffers],
            [torch.from_numpy(each).view(dtype) for each in into],
            length,
        )


def _average_native(buffers: Sequence[NDArray[Any]], into: Sequence[NDArray[Any]], length: int) -> None:
    size, first = len(buffers), into[0]
    scale, by = (np.multiply, 1 / size) if _is_power_of_two(size) else (np.divide, size)
    factor = first.dtype.type(by)
    for start in range(0, len(first), length):
        part = slice(start, start + length)
        total = first[part]
        np.add(buffers[0][part], buffers[1][part], out=total)
        for buffer in buffers[2:]:
            np.add(total, buffer[part], out=total)
        for each in reversed(into):  # the sum itself last; scaling again takes less than memcpy does
            scale(total, factor, out=each[part])


def _average_narrow(buffers: Sequence[Tensor], into: Sequence[Tensor], length: int) -> None:
    size, total = len(buffers), torch.empty(min(length, len(into[0])))
    for start in range(0, len(into[0]), length):
        part = slice(start, start + length)
        total = total[: len(into[0][part])]
        total.copy_(buffers[0][part])
        for buffer in buffers[1:]:
            total.add_(buffer[part])
        rounded = into[0][part].copy_(total.mul_(1 / size) if _is_power_of_two(size) else total.div_(size))
        for other in into[1:]:
            other[part].copy_(rounded)


def _is_power_of_two(size: int) -> bool:
    """Then a product has the bits of the quotient, and takes half of its time."""
    return size & (size - 1) == 0


def share(num_bytes: int, rank: int, size: int) -> slice:
    """The bytes of a buffer that a rank averages: whole cache lines, so that no two ranks write to the same.

    >>> [share(1000, rank, 3) for rank in range(3)]
    [slice(0, 384, None), slice(384, 768, None), slice(768, 1000, None)]
    """
    step = LINE_BYTES * -(-num_bytes // (LINE_BYTES * size))
    return slice(min(num_bytes, step * rank), min(num_bytes, step * (rank + 1)))
