"""What averages buffers in a rank of the sync benchmark: Gloo and MPI as they are, and deepex's fabrics.

Each engine is opened for a rank and answers two commands: a round of all-reduces, and a round of mere copies.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from deepex.bench.sync.parts import Commands
from deepex.errors import TrainingError
from deepex.fabric import Fabric, FabricName
from deepex.fabric.mpi.thread import finish
from deepex.launch.detect import find_world
from deepex.launch.rank import join

MEGABYTE = 10**6
TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A way to reduce a tensor in place over all ranks; `is_mean` tells what comes out: the mean, or the sum."""

    rank: int
    size: int
    buffer: Tensor
    barrier: Callable[[], object]
    reduce: Callable[[Tensor], object]
    is_mean: bool

    def round(self, megabytes: float, times: int) -> dict[str, Any]:
        """Seconds of one all-reduce: of several, one behind the other, after a barrier."""
        part = self.buffer[: int(megabytes * MEGABYTE) // 4]
        part.fill_(self.rank + 1)
        self.barrier()
        started = perf_counter()
        for _ in range(times):
            self.reduce(part)
        seconds = (perf_counter() - started) / times
        total = self.size * (self.size + 1) / 2
        wanted = total / self.size if self.is_mean else total * self.size ** (times - 1)
        if not bool((part == wanted).all()):
            raise TrainingError(f"an all-reduce of {megabytes:g} MB came out wrong: {part[:4].tolist()}, not {wanted}")
        return {"seconds": seconds}

    def copy(self, megabytes: float, times: int) -> dict[str, Any]:
        """Seconds of one copy from memory to memory, by all ranks at once."""
        source = np.ones(int(megabytes * MEGABYTE) // 8)
        target = source.copy()  # its pages are there from now on
        self.barrier()
        started = perf_counter()
        for _ in range(times):
            np.copyto(target, source)
        return {"seconds": (perf_counter() - started) / times}

    @property
    def commands(self) -> Commands:
        return {"round": self.round, "copy": self.copy}


@contextmanager
def open_engine(*, engine: str, megabytes: float) -> Iterator[tuple[int, Commands]]:
    """An engine by name, with a buffer of so many megabytes: `gloo`, `mpi`, or `fabric:NAME`."""
    torch.set_num_threads(1)
    numel = int(megabytes * MEGABYTE) // 4
    if engine == "gloo":
        dist.init_process_group("gloo")
        made = Engine(
            rank=dist.get_rank(),
            size=dist.get_world_size(),
            buffer=torch.zeros(numel),
            barrier=dist.barrier,
            reduce=dist.all_reduce,
            is_mean=False,
        )
        yield made.rank, made.commands
    elif engine == "mpi":
        made = _open_mpi(numel)
        yield made.rank, made.commands
        _leave_mpi()
    else:
        name: Any = engine.removeprefix("fabric:")
        with _open_fabric(name) as fabric:
            made = Engine(
                rank=fabric.world.rank,
                size=fabric.world.size,
                buffer=fabric.empty(numel),
                barrier=lambda: fabric.gather(None),
                reduce=lambda tensor: fabric.mean_(tensor).wait(),
                is_mean=True,
            )
            yield made.rank, made.commands
            fabric.gather(None)  # a rank that left early would look dead to the others
        finish()


@contextmanager
def _open_fabric(name: FabricName) -> Iterator[Fabric]:
    with join(find_world(), TIMEOUT_SECONDS, name) as fabric:
        yield fabric


def _open_mpi(numel: int) -> Engine:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    return Engine(
        rank=comm.rank,
        size=comm.size,
        buffer=torch.zeros(numel),
        barrier=comm.Barrier,
        reduce=lambda tensor: comm.Allreduce(MPI.IN_PLACE, tensor.numpy()),
        is_mean=False,
    )


def _leave_mpi() -> None:
    from mpi4py import MPI

    MPI.Finalize()
