"""Several ranks for a test: real processes that talk by a real fabric, and a function that each of them runs."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TypeVar, cast

import cloudpickle
import torch
from torch._C._distributed_c10d import TCPStore  # torch.distributed leaves it out of its types

from deepex.fabric import Fabric, FabricName, Rendezvous, open_fabric
from deepex.launch.launchers.torchrun import torchrun_variables
from deepex.testing.processes import clean_processes
from deepex.world import World

V = TypeVar("V")

CALLS_OF_A_POOL = 8

_pools: dict[int, tuple[ProcessPoolExecutor, int]] = {}  # by their number of ranks, with how often they were called


def on_ranks(
    num_ranks: int,
    function: Callable[[Fabric], V],
    *,
    fabric: FabricName = "torch",
    ranks_per_host: int | None = None,
    timeout_seconds: float = 60.0,
) -> list[V]:
    """What `function` returns on each of `num_ranks` ranks, in rank order.

    With `ranks_per_host` they are told that they stand on several hosts, so many on each.

    Example: `on_ranks(2, lambda fabric: fabric.world.rank)` is `[0, 1]`.
    """
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    address = f"127.0.0.1:{store.port}"
    if not function.__module__.startswith("deepex."):
        cloudpickle.register_pickle_by_value(sys.modules[function.__module__])  # ranks can't import a test's module
    body = cloudpickle.dumps(function)
    pool = _take_pool(num_ranks)
    futures = [
        pool.submit(_rank, _world(rank, num_ranks, ranks_per_host), address, body, fabric, timeout_seconds)
        for rank in range(num_ranks)
    ]
    try:
        return [cast(V, cloudpickle.loads(future.result(timeout=2 * timeout_seconds))) for future in futures]
    except BaseException:
        _pools.pop(num_ranks)  # a rank may be dead or waiting for one that is: the next call gets new ones
        pool.shutdown(wait=False, cancel_futures=True)
        raise


def _take_pool(num_ranks: int) -> ProcessPoolExecutor:
    """Processes that stay, so that few calls pay for starting them; not for ever, each call leaves threads of Gloo."""
    pool, calls = _pools.get(num_ranks, (None, 0))
    if pool is None or calls == CALLS_OF_A_POOL:
        if pool is not None:
            pool.shutdown(wait=False)
        pool, calls = ProcessPoolExecutor(num_ranks, mp_context=clean_processes(), initializer=_leave_quickly), 0
    _pools[num_ranks] = (pool, calls + 1)
    return pool


def _leave_quickly() -> None:
    """End as ranks do: without the interpreter's clean-up, where a thread of Gloo may abort (docs/log.md)."""
    Finalize(None, os._exit, args=(0,), exitpriority=-100)


def start_ranks(
    command: Sequence[str], num_ranks: int, environment: Mapping[str, str], output: Path
) -> list[subprocess.Popen[bytes]]:
    """A command as ranks of this machine that nobody looks after; each writes what it says to `rankN.txt` in `output`.

    They find their numbers as under torchrun. Rank 0 serves the rendezvous, so it too can be killed.
    """
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    ranks = []
    for rank in range(num_ranks):
        variables = torchrun_variables(rank=rank, size=num_ranks, address="127.0.0.1", port=port)
        with open(output / f"rank{rank}.txt", "wb") as file:
            ranks.append(subprocess.Popen(command, env={**environment, **variables}, stdout=file, stderr=file))
    return ranks


def _world(rank: int, size: int, ranks_per_host: int | None) -> World:
    if ranks_per_host is None:
        return World(rank=rank, size=size, local_rank=rank, local_size=size, launcher="test")
    host, local_rank = f"n{rank // ranks_per_host + 1}", rank % ranks_per_host
    return World(rank=rank, size=size, local_rank=local_rank, local_size=ranks_per_host, host=host, launcher="test")


def _rank(world: World, address: str, body: bytes, fabric: FabricName, timeout_seconds: float) -> bytes:
    torch.set_num_threads(1)
    rendezvous = Rendezvous(world, address=address, agent_store=True, timeout_seconds=timeout_seconds)
    with open_fabric(fabric, rendezvous) as opened:
        return bytes(cloudpickle.dumps(cloudpickle.loads(body)(opened)))
