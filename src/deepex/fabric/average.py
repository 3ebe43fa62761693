"""The mean of several buffers, in pieces that stay in the cache between its passes. It knows arrays, and no ranks."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
NATIVE = {torch.float32: np.float32, torch.float64: np.float64}
LINE_BYTES = 64

PIECE_BYTES = 2**18  # of each buffer: calls cost more with less, and with more the passes come from memory
NARROW_PIECE_BYTES = 2**18  # of the wide sums of 16-bit numbers, where torch's calls cost more than NumPy's


def average(buffers: Sequence[Bytes], into: Sequence[Bytes], dtype: torch.dtype) -> None:
    """Write (x_0 + x_1 + …) / P of P buffers, added in this order, into some; these may be the buffers themselves.

    Numbers of 16 bits are added up in float32 and rounded once.
    """
    if dtype in NATIVE:
        _average_native([each.view(NATIVE[dtype]) for each in buffers], [each.view(NATIVE[dtype]) for each in into])
    else:
        _average_narrow(buffers, into, dtype)


def _average_native(buffers: Sequence[NDArray[Any]], into: Sequence[NDArray[Any]]) -> None:
    size, first = len(buffers), into[0]
    is_exact = size & (size - 1) == 0  # then a product has the bits of the quotient, and is faster
    scale, by = (np.multiply, first.dtype.type(1 / size)) if is_exact else (np.divide, first.dtype.type(size))
    length = PIECE_BYTES // first.itemsize
    for start in range(0, len(first), length):
        part = slice(start, start + length)
        total = first[part]
        np.add(buffers[0][part], buffers[1][part], out=total)
        for buffer in buffers[2:]:
            np.add(total, buffer[part], out=total)
        scale(total, by, out=total)
        for other in into[1:]:
            np.copyto(other[part], total)


def _average_narrow(buffers: Sequence[Bytes], into: Sequence[Bytes], dtype: torch.dtype) -> None:
    length = NARROW_PIECE_BYTES // torch.float32.itemsize
    sources = [torch.from_numpy(each).view(dtype) for each in buffers]
    targets = [torch.from_numpy(each).view(dtype) for each in into]
    total = torch.empty(min(length, len(targets[0])))
    for start in range(0, len(targets[0]), length):
        part = slice(start, start + length)
        total = total[: len(targets[0][part])]
        total.copy_(sources[0][part])
        for source in sources[1:]:
            total.add_(source[part])
        total.div_(len(sources))
        for target in targets:
            target[part].copy_(total)


def share(num_bytes: int, rank: int, size: int) -> slice:
    """The bytes of a buffer that a rank averages: whole cache lines, so that no two ranks write to the same.

    >>> [share(1000, rank, 3) for rank in range(3)]
    [slice(0, 384, None), slice(384, 768, None), slice(768, 1000, None)]
    """
    step = LINE_BYTES * -(-num_bytes // (LINE_BYTES * size))
    return slice(min(num_bytes, step * rank), min(num_bytes, step * (rank + 1)))
