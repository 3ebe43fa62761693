"""The ways to train a workload: a loop as one writes it by hand, Lightning, Accelerate, and deepex.

Each is a function that trains for ever and calls its `pace` after every step, which measures, and waits for its turn.
All train the same network with the same optimiser. Peers are imported only where they run.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from deepex.bench.step.workloads import Workload
from deepex.fabric import SoloFabric
from deepex.launch.rank import set_up_process
from deepex.optim import OptimiserConfig
from deepex.record.folder import RunFolder
from deepex.record.phases import StepTimes
from deepex.record.sinks.progress import Silent
from deepex.sample import Batch
from deepex.train.compute.precision import Precision
from deepex.train.input import open_data
from deepex.train.loop import Loop
from deepex.world import World


class Pace(Protocol):
    """Called after each step; `take_phases` is how deepex's own clock can be read and set to zero."""

    take_phases: Callable[[], StepTimes]

    def __call__(self) -> None: ...


def plain(workload: Workload, pace: Pace) -> None:
    """The loop of every tutorial: eager, fp32, torch's defaults."""
    model, batch = prepare(workload)
    optimiser = build_torch_optimiser(workload.optimiser, model)
    while True:
        optimiser.zero_grad()
        loss = workload.loss(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves backward untyped
        optimiser.step()
        pace()


def lightning(workload: Workload, pace: Pace) -> None:
    """Lightning's Trainer without logger, checkpoints and progress bar."""
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Batch, _: int) -> Tensor:
            return workload.loss(self.model, batch)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return build_torch_optimiser(workload.optimiser, self.model)

    class Pacer(pl.Callback):
        def on_train_batch_end(self, *_: object, **__: object) -> None:
            pace()

    model, batch = prepare(workload)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Pacer()],
    )
    trainer.fit(Module(model), train_dataloaders=_endless(batch))


def accelerate(workload: Workload, pace: Pace) -> None:
    """Hugging Face's Accelerate around the plain loop."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model, batch = prepare(workload)
    optimiser = build_torch_optimiser(workload.optimiser, model)
    model, optimiser, loader = accelerator.prepare(model, optimiser, _endless(batch))
    for received in loader:
        optimiser.zero_grad()
        loss = workload.loss(model, received)
        accelerator.backward(loss)
        optimiser.step()
        pace()


def deepex(workload: Workload, pace: Pace, *, precision: Precision) -> None:
    """deepex's own loop with all that a run does in a step: reading the batch, phases, a look at the loss."""

    class Paced(Silent):
        def step(self, epoch: int, step: int, steps: int, seconds: float) -> None:
            pace()

    torch.manual_seed(0)
    recipe = replace(workload.recipe(), precision=precision)
    set_up_process(recipe, len(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder.create(Path(folder) / "run")
        loop = Loop(recipe, open_data(recipe), SoloFabric(World()), run, Paced())
        loop.prepare()
        pace.take_phases = loop.clock.take
        while True:
            loop.train_epoch()
            loop.position.epoch, loop.position.step = loop.position.epoch + 1, 0


VARIANTS: dict[str, Callable[[Workload, Pace], None]] = {
    "plain": plain,
    "lightning": lightning,
    "accelerate": accelerate,
    "deepex-fp32": partial(deepex, precision="fp32"),
    "deepex-bf16": partial(deepex, precision="bf16"),
}
PEERS = {"lightning": "lightning", "accelerate": "accelerate"}  # variants that need a package, by its name


def prepare(workload: Workload) -> tuple[nn.Module, Batch]:
    """The network and one batch, in the process as a script would have it."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    batch = workload.samples(workload.batch)
    return workload.network().train(), batch


def build_torch_optimiser(config: OptimiserConfig, model: nn.Module) -> torch.optim.Optimizer:
    """The same optimiser as torch has it, with torch's defaults."""
    if config.name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=config.learning_rate, momentum=config.momentum)
    return torch.optim.Adam(model.parameters(), lr=config.learning_rate)


class _Endless(IterableDataset[Batch]):
    """The same batch for ever, at no cost."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def __iter__(self) -> Iterator[Batch]:
        while True:
            yield self.batch


def _endless(batch: Batch) -> DataLoader[Batch]:
    return DataLoader(_Endless(batch), batch_size=None)
