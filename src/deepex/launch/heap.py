"""Keeping the heap: memory that a step freed is there for the next one, instead of going back to the kernel.

glibc unmaps large blocks when they are freed and maps them anew, page fault by page fault: activations of CosmoFlow
cost 185,000 faults a step. It changes where numbers stand, and no number. It knows the C library, and nothing else.
"""

import ctypes

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4  # from malloc.h
SETTINGS = {
    M_MMAP_MAX: 0,  # nothing in a mapping of its own, which a free would give back
    M_TRIM_THRESHOLD: 2**31 - 1,  # the largest int: the top of the heap stays
    M_TOP_PAD: 256 * 2**20,  # growing in large pieces
}


def keep_heap() -> bool:
    """Let this process keep what it frees, for good; whether the C library can (glibc does).

    The process holds its peak until it ends. Called before the first tensor of a run.

    >>> keep_heap() in (True, False)
    True
    """
    library = ctypes.CDLL(None)
    try:
        mallopt = library.mallopt
    except AttributeError:  # musl and macOS have none
        return False
    accepted = [mallopt(parameter, value) == 1 for parameter, value in SETTINGS.items()]
    return all(accepted)
