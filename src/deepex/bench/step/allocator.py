"""jemalloc in place of the C library's allocator: an expert preloads it and lets it keep the pages that a step frees.

It knows how a process is started with it and how a process tells that it has it.
"""

import os
from ctypes.util import find_library
from pathlib import Path

KEEP_PAGES = "dirty_decay_ms:-1,muzzy_decay_ms:-1,metadata_thp:auto,oversize_threshold:1"


def preload_jemalloc() -> dict[str, str]:
    """The environment variables of a process that computes with jemalloc; none where it is not installed."""
    library = find_library("jemalloc")
    if library is None:
        return {}
    others = os.environ.get("LD_PRELOAD", "")
    return {"LD_PRELOAD": f"{library}:{others}".rstrip(":"), "MALLOC_CONF": KEEP_PAGES}


def has_jemalloc() -> bool:
    """Whether this process was started with it."""
    return "libjemalloc" in Path("/proc/self/maps").read_text()
