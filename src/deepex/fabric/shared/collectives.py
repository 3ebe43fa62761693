"""The collectives of ranks that share memory, as steps: a generator yields where a rank waits until all have arrived.

They know a group's windows, headers and blocks, and nothing of who waits or how long.
"""

from collections.abc import Sequence

import torch

from deepex.fabric.shared.average import Bytes, average, share
from deepex.fabric.shared.peer_group import PeerGroup
from deepex.fabric.shared.peer_slot import DTYPES, GATHER, WINDOW_BYTES, CallHeader
from deepex.fabric.shared.progress import Steps

SMALL_BYTES = 2**14  # every rank averages so little itself: that takes less than waiting for others to do a share


def mean(group: PeerGroup, flat: Bytes, header: CallHeader) -> Steps:
    """Replace a tensor by the mean of all ranks: all arrive, each writes its share to all, all arrive."""
    rank, size, dtype = group.world.rank, group.world.size, DTYPES[header.dtype]
    windows, is_small = group.windows(), len(flat) <= SMALL_BYTES
    if is_small:
        windows[rank][: len(flat)] = flat
    yield from group.arrive(header)
    headers = group.read_headers(header)
    if is_small:
        average([window[: len(flat)] for window in windows], [flat], dtype)
    elif all(each.inode for each in headers):
        part = share(len(flat), rank, size)
        buffers = [group.view(other, each, flat)[part] for other, each in enumerate(headers)]
        average(buffers, buffers, dtype)
        yield from group.arrive()
    else:
        yield from _mean_by_windows(group, flat, dtype)


def _mean_by_windows(group: PeerGroup, flat: Bytes, dtype: torch.dtype) -> Steps:
    """The mean of what lies anywhere: each shows others their shares of a piece, and copies theirs."""
    rank, size = group.world.rank, group.world.size
    others = [other for other in range(size) if other != rank]
    for start in range(0, len(flat), WINDOW_BYTES):
        piece = flat[start : start + WINDOW_BYTES]
        shares = [share(len(piece), other, size) for other in range(size)]
        windows = group.windows()
        for other in others:
            windows[rank][shares[other]] = piece[shares[other]]
        yield from group.arrive()
        results, own = group.windows(), shares[rank]
        buffers = [piece[own] if at == rank else window[own] for at, window in enumerate(windows)]
        average(buffers, [results[rank][own], piece[own]], dtype)
        yield from group.arrive()
        for other in others:
            piece[shares[other]] = results[other][shares[other]]


def broadcast(group: PeerGroup, flat: Bytes, header: CallHeader) -> Steps:
    """Replace a tensor by that of the source: all arrive, all but the source copy."""
    source, is_source = header.source, header.source == group.world.rank
    for start in range(0, max(1, len(flat)), WINDOW_BYTES):
        piece, window = flat[start : start + WINDOW_BYTES], group.windows()[source]
        if is_source and not header.inode:
            window[: len(piece)] = piece
        yield from group.arrive(None if start else header)
        if not start and (shown := group.read_headers(header)[source]).inode:
            if not is_source:
                flat[:] = group.view(source, shown, flat)
            yield from group.arrive()
            return
        if not is_source:
            piece[:] = window[: len(piece)]


def gather(group: PeerGroup, payload: bytes, parts: Sequence[bytearray]) -> Steps:
    """Append every rank's bytes to its part: all show theirs piece by piece, all copy them."""
    header, lengths = CallHeader(GATHER, 0, len(payload), 0, 0, 0, 0), [1]
    start = 0
    while start < max(lengths):
        chunk, windows = payload[start : start + WINDOW_BYTES], group.windows()
        windows[group.world.rank][: len(chunk)].data[:] = chunk
        yield from group.arrive(None if start else header)
        if not start:
            lengths = [each.numel for each in group.read_headers(header)]
        for part, window, length in zip(parts, windows, lengths, strict=True):
            part += window[: max(0, min(WINDOW_BYTES, length - start))].data
        start += WINDOW_BYTES
