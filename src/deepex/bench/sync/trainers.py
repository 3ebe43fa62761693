"""Ways to train in a rank of the sync benchmark: torch's DDP, Accelerate's local SGD, deepex's strategies, and none.

Peers are plain torch, as people use it; deepex has the process that its runs have. All train the same network from the
same weights on the same batches, with SGD and momentum, on one thread. Each carries out epochs when it is told to.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter, process_time, sleep
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from deepex import sync as strategies
from deepex.bench.step.variants import build_torch_optimiser
from deepex.bench.step.workloads import Workload
from deepex.bench.sync.networks import NETWORKS
from deepex.bench.sync.parts import Commands
from deepex.fabric import Fabric, SoloFabric
from deepex.launch.detect import find_world
from deepex.launch.rank import join, set_up_process
from deepex.optim import Optimiser
from deepex.record.phases import Clock
from deepex.sample import Batch
from deepex.sync import SyncContext
from deepex.train.resolve import resolve
from deepex.train.step import Step
from deepex.world import World

NUM_BATCHES = 4  # a rank goes through them again and again
TIMEOUT_SECONDS = 240.0


class Trainer(Protocol):
    """One rank's training, step by step."""

    rank: int

    def barrier(self) -> None:
        """Wait for all ranks."""

    def step(self, number: int) -> None:
        """Train on one batch."""

    def close_epoch(self) -> None:
        """What a strategy does when an epoch ends."""

    def take_sync_seconds(self) -> float | None:
        """What was spent in sync since the last call, if that is known."""


class PlainLoop:
    """The loop of every tutorial, each rank alone."""

    def __init__(self, workload: Workload, interval: int) -> None:
        torch.set_num_threads(1)
        self._join()
        self.rank = dist.get_rank()
        torch.manual_seed(0)  # every rank begins with the same weights
        self.model = self._wrap(workload.network().train())
        self.optimiser = build_torch_optimiser(workload.optimiser, self.model)
        self.loss, self.batches = workload.loss, draw_batches(workload, self.rank)

    def _join(self) -> None:
        dist.init_process_group("gloo")

    def _wrap(self, model: nn.Module) -> nn.Module:
        return model

    def barrier(self) -> None:
        dist.barrier()

    def step(self, number: int) -> None:
        self.optimiser.zero_grad()
        self.backward(self.loss(self.model, self.batches[number % NUM_BATCHES]))
        self.optimiser.step()

    def backward(self, loss: Tensor) -> None:
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves backward untyped

    def close_epoch(self) -> None:
        return None

    def take_sync_seconds(self) -> float | None:
        return None


class Ddp(PlainLoop):
    """torch's DistributedDataParallel, as it is."""

    views = False

    def _wrap(self, model: nn.Module) -> nn.Module:
        return DistributedDataParallel(model, gradient_as_bucket_view=self.views)


class DdpViews(Ddp):
    """The same, with gradients that are views into its buckets."""

    views = True


class LocalSgd(PlainLoop):
    """Accelerate's LocalSGD around the plain loop."""

    def __init__(self, workload: Workload, interval: int) -> None:
        super().__init__(workload, interval)
        from accelerate.local_sgd import LocalSGD

        self.model, self.optimiser = self.accelerator.prepare(self.model, self.optimiser)
        self.local = LocalSGD(accelerator=self.accelerator, model=self.model, local_sgd_steps=interval, enabled=True)
        self.local.__enter__()  # for as long as the process lives

    def _join(self) -> None:
        from accelerate import Accelerator

        self.accelerator = Accelerator(cpu=True)

    def backward(self, loss: Tensor) -> None:
        self.accelerator.backward(loss)

    def step(self, number: int) -> None:
        super().step(number)
        self.local.step()


class Deepex:
    """deepex's own step, replica, optimiser and strategy; without a strategy each rank trains alone."""

    def __init__(self, workload: Workload, fabric: Fabric, sync: str) -> None:
        self.fabric, self.rank, self.clock = fabric, fabric.world.rank, Clock()
        own = fabric if sync else SoloFabric(World())
        recipe = workload.recipe()
        self.batches = draw_batches(workload, self.rank)
        resolved = resolve(recipe, own, self.batches[0])
        self.replica, self.sync = resolved.replica, strategies.parse(sync or strategies.DEFAULT)
        optimiser = Optimiser(recipe.optimiser, self.replica)
        self.optimise = Step(recipe.task, self.replica, optimiser, self.sync, resolved.recipe.precision, self.clock)
        self.replica.model.train()
        self.sync.prepare(
            SyncContext(
                replica=self.replica,
                fabric=own,
                moments=optimiser.state_dict(),
                steps_per_epoch=NUM_BATCHES,
                batch=workload.batch,
            )
        )

    def barrier(self) -> None:
        self.fabric.gather(None)

    def step(self, number: int) -> None:
        with self.clock.step:
            with self.clock.input:
                batch = self.batches[number % NUM_BATCHES]
            loss = self.optimise(batch, number)
        loss.total.item()  # the loop looks at it

    def close_epoch(self) -> None:
        with self.clock.step, self.clock.sync:
            self.sync.drain()

    def take_sync_seconds(self) -> float | None:
        return float(self.clock.take().phase_seconds["sync"])

    def collective(self, times: int) -> dict[str, Any]:
        """Seconds of all-reduces of the gradients, each by itself after a barrier."""
        seconds = []
        for _ in range(times):
            self.barrier()
            started = perf_counter()
            self.fabric.mean_(self.replica.gradients).wait()
            seconds.append(perf_counter() - started)
        return {"seconds": seconds}


class Conductor:
    """Carries out commands with a trainer; counts its steps over the process's life."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer, self.number = trainer, 0

    def epoch(self, lead: int, steps: int, *, closes: bool = False, slow_rank: int | None = None) -> dict[str, Any]:
        """Seconds of some steps, wall and CPU, after `lead` that are not counted; with `closes` an epoch's end too.

        No barrier stands between the two: what is on its way then is steady work. A rank that is slow sleeps for nine
        times as long as each step took it.
        """
        self.trainer.barrier()
        is_slow = slow_rank == self.trainer.rank
        for _ in range(lead):
            self._step(is_slow=is_slow)
        self.trainer.take_sync_seconds()
        wall, cpu = perf_counter(), process_time()
        for _ in range(steps):
            self._step(is_slow=is_slow)
        if closes:
            self.trainer.close_epoch()
        return {
            "wall_seconds": perf_counter() - wall,
            "cpu_seconds": process_time() - cpu,
            "sync_seconds": self.trainer.take_sync_seconds(),
        }

    def _step(self, *, is_slow: bool) -> None:
        started = perf_counter()
        self.trainer.step(self.number)
        self.number += 1
        if is_slow:
            sleep(9 * (perf_counter() - started))


PEERS: dict[str, type[PlainLoop]] = {"plain": PlainLoop, "ddp": Ddp, "ddp-views": DdpViews, "local-sgd": LocalSgd}


@contextmanager
def open_trainer(*, trainer: str, network: str, sync: str = "", interval: int = 0) -> Iterator[tuple[int, Commands]]:
    """A trainer by name, ready for commands."""
    workload = NETWORKS[network]
    if trainer in PEERS:
        peer = PEERS[trainer](workload, interval)
        yield peer.rank, {"epoch": Conductor(peer).epoch}
        return
    set_up_process(workload.recipe(), 1)
    with join(find_world(), TIMEOUT_SECONDS) as fabric:
        own = Deepex(workload, fabric, sync)
        yield own.rank, {"epoch": Conductor(own).epoch, "collective": own.collective}


def draw_batches(workload: Workload, rank: int) -> list[Batch]:
    """The same batches for every variant, others on every rank."""
    torch.manual_seed(1 + rank)
    return [workload.samples(workload.batch) for _ in range(NUM_BATCHES)]
