"""Several ranks for a test: real processes that talk by a real fabric, and a function that each of them runs."""

import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from typing import TypeVar, cast

import cloudpickle
import torch
from torch._C._distributed_c10d import TCPStore  # torch.distributed leaves it out of its types

from deepex.fabric import Fabric, FabricName, Meeting, open_fabric
from deepex.world import World

V = TypeVar("V")


def on_ranks(
    num_ranks: int, function: Callable[[Fabric], V], *, fabric: FabricName = "torch", timeout_seconds: float = 60.0
) -> list[V]:
    """What `function` returns on each of `num_ranks` ranks, in rank order.

    Example: `on_ranks(2, lambda fabric: fabric.world.rank)` is `[0, 1]`.
    """
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    address = f"127.0.0.1:{store.port}"
    cloudpickle.register_pickle_by_value(sys.modules[function.__module__])  # ranks can't import a test's module
    body = cloudpickle.dumps(function)
    pool = _processes(num_ranks)
    futures = [
        pool.submit(_rank, rank, num_ranks, address, body, fabric, timeout_seconds) for rank in range(num_ranks)
    ]
    try:
        return [cast(V, future.result(timeout=2 * timeout_seconds)) for future in futures]
    except BaseException:
        _processes.cache_clear()  # a rank may be dead or waiting for one that is: the next call gets new ones
        pool.shutdown(wait=False, cancel_futures=True)
        raise


@cache
def _processes(num_ranks: int) -> ProcessPoolExecutor:
    """Processes that stay, so that only the first call pays for importing torch."""
    return ProcessPoolExecutor(num_ranks, mp_context=get_context("spawn"))


def _rank(rank: int, size: int, address: str, body: bytes, fabric: FabricName, timeout_seconds: float) -> object:
    torch.set_num_threads(1)
    world = World(rank=rank, size=size, local_rank=rank, local_size=size, launcher="test")
    meeting = Meeting(world, address=address, agent_store=True, timeout_seconds=timeout_seconds)
    with open_fabric(fabric, meeting) as opened:
        return cloudpickle.loads(body)(opened)
