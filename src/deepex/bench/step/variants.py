"""The ways to train a workload: loops that people run, one that an expert would write by hand, and deepex.

Each is a function that trains for ever and calls its `pace` after every step, which measures, and waits for its turn.
All train the same network with the same optimiser. Peers are imported only where they run.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from deepex.bench.step.allocator import has_jemalloc
from deepex.bench.step.expert import Step, Way, find_fastest, list_ways
from deepex.bench.step.workloads import Workload
from deepex.data import ArraySource, Subset
from deepex.fabric import SoloFabric
from deepex.launch.rank import set_up_process
from deepex.optim import OptimiserConfig
from deepex.own_loop import LoopConfig, Replicated, feed, run_loop
from deepex.record.flops import count_flops
from deepex.record.folder import RunFolder
from deepex.record.phases import StepTimes
from deepex.record.sinks.progress import Silent
from deepex.sample import Batch
from deepex.train.compute.precision import Precision, autocast
from deepex.train.input import open_data
from deepex.train.loop import Loop
from deepex.world import World

LOOP_STEPS = 20_000  # more than a benchmark makes
CPU = torch.device("cpu")
LIGHTNING_PRECISIONS: dict[Precision, Literal["32-true", "bf16-mixed"]] = {"fp32": "32-true", "bf16": "bf16-mixed"}
ACCELERATE_PRECISIONS: dict[Precision, str] = {"fp32": "no", "bf16": "bf16"}
Kind = Literal["peer", "expert", "ours"]
SMALL_FLOPS = 1_000_000_000  # of a step; below, an expert also tries a single thread
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}  # by a tensor's dimensions


class Pace(Protocol):
    """Called after each step, and told what is worth saying.

    Attributes:
        take_phases: how deepex's own clock is read and set to zero.
        note: what to say of a variant beside its times.
    """

    take_phases: Callable[[], StepTimes]
    note: str

    def __call__(self) -> None: ...

    def tell(self, text: str) -> None:
        """Say what is going on before the first step."""


def plain(workload: Workload, pace: Pace, precision: Precision) -> None:
    """The loop of every tutorial: eager, torch's defaults; in bf16 with autocast around the forward and the loss."""
    model, batch = prepare(workload)
    optimiser = build_torch_optimiser(workload.optimiser, model)
    while True:
        optimiser.zero_grad()
        with autocast(precision, CPU):
            loss = workload.loss(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves backward untyped
        optimiser.step()
        pace()


def lightning(workload: Workload, pace: Pace, precision: Precision) -> None:
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
        precision=LIGHTNING_PRECISIONS[precision],
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Pacer()],
    )
    trainer.fit(Module(model), train_dataloaders=_endless(batch))


def accelerate(workload: Workload, pace: Pace, precision: Precision) -> None:
    """Hugging Face's Accelerate around the plain loop."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, mixed_precision=ACCELERATE_PRECISIONS[precision])
    model, batch = prepare(workload)
    optimiser = build_torch_optimiser(workload.optimiser, model)
    model, optimiser, loader = accelerator.prepare(model, optimiser, _endless(batch))
    for received in loader:
        optimiser.zero_grad()
        loss = workload.loss(model, received)
        accelerator.backward(loss)
        optimiser.step()
        pace()


def fabric(workload: Workload, pace: Pace, precision: Precision) -> None:
    """Lightning's Fabric around the plain loop."""
    from lightning.fabric import Fabric

    runner = Fabric(accelerator="cpu", devices=1, precision=LIGHTNING_PRECISIONS[precision])
    plain_model, batch = prepare(workload)
    model, optimiser = runner.setup(plain_model, build_torch_optimiser(workload.optimiser, plain_model))
    for received in runner.setup_dataloaders(_endless(batch)):
        optimiser.zero_grad()
        loss = workload.loss(model, received)
        runner.backward(loss)
        optimiser.step()
        pace()


def expert(workload: Workload, pace: Pace, precision: Precision) -> None:
    """The best that one could write by hand in plain PyTorch: the fastest of a few ways, in a process with jemalloc."""
    has_convolutions = any(parameter.dim() in CHANNELS_LAST for parameter in workload.network().parameters())
    ways = list_ways(has_convolutions=has_convolutions, is_small=count_step(workload) < SMALL_FLOPS)
    choice = find_fastest(ways, partial(build_expert_step, workload, precision), workload.steps, pace.tell)
    allocator = () if has_jemalloc() else ("without jemalloc: apt-get install libjemalloc2 brings it in",)
    pace.note = "; ".join((str(choice.way), *allocator, *choice.left_out))
    while True:
        choice.step()
        pace()


def build_expert_step(workload: Workload, precision: Precision, way: Way) -> Step:
    """A training step written in one way, with a fused optimiser."""
    model, batch = prepare(workload)
    if way.channels_last:
        batch = {name: lay_channels_last(tensor) for name, tensor in batch.items()}
        for parameter in model.parameters():
            parameter.data = lay_channels_last(parameter.data)
    optimiser = build_torch_optimiser(workload.optimiser, model, fused=True)

    def forward(samples: Batch) -> Tensor:
        with autocast(precision, CPU):
            return workload.loss(model, samples)

    # Shapes never change, so the compiler need not provide for others.
    compiled = torch.compile(forward, dynamic=False) if way.compiled else forward

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        compiled(batch).backward()  # type: ignore[no-untyped-call]  # torch
        optimiser.step()

    return step


def lay_channels_last(tensor: Tensor) -> Tensor:
    """A tensor of images or cubes with its channels innermost; any other as it is."""
    return tensor.contiguous(memory_format=CHANNELS_LAST.get(tensor.dim(), torch.contiguous_format))


def deepex(workload: Workload, pace: Pace, precision: Precision) -> None:
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


def deepex_loop(workload: Workload, pace: Pace, precision: Precision) -> None:
    """A loop that the user keeps, with a torch optimiser of its own, through deepex."""
    count = workload.batch * workload.steps
    endless = np.resize(np.arange(count), LOOP_STEPS * workload.batch)  # one long epoch of the same samples
    with tempfile.TemporaryDirectory() as folder:
        config = LoopConfig(out=Path(folder) / "run", precision=precision, verbosity="quiet")
        with run_loop(config) as run:
            model, _ = prepare(workload)
            replicated = Replicated(model, build_torch_optimiser(workload.optimiser, model))
            pace.take_phases = run.clock.take
            for batch in feed(Subset(ArraySource(workload.samples(count)), endless), workload.batch):
                with replicated.step() as step:
                    with autocast(precision, CPU):
                        loss = workload.loss(model, batch)
                    step.backward(loss)
                pace()


@dataclass(frozen=True)
class Variant:
    """One row of the benchmark.

    Attributes:
        train: trains for ever.
        kind: a peer is what people run; an expert is what could be written by hand; ours is deepex.
        package: what must be installed for it, beside torch.
    """

    name: str
    train: Callable[[Workload, Pace, Precision], None]
    precision: Precision
    kind: Kind
    package: str | None = None


_TABLE = (
    Variant("plain", plain, "fp32", "peer"),
    Variant("lightning", lightning, "fp32", "peer", "lightning"),
    Variant("fabric", fabric, "fp32", "peer", "lightning"),
    Variant("accelerate", accelerate, "fp32", "peer", "accelerate"),
    Variant("expert-fp32", expert, "fp32", "expert"),
    Variant("deepex-loop", deepex_loop, "fp32", "ours"),
    Variant("deepex-fp32", deepex, "fp32", "ours"),
    Variant("plain-bf16", plain, "bf16", "peer"),
    Variant("lightning-bf16", lightning, "bf16", "peer", "lightning"),
    Variant("fabric-bf16", fabric, "bf16", "peer", "lightning"),
    Variant("accelerate-bf16", accelerate, "bf16", "peer", "accelerate"),
    Variant("expert-bf16", expert, "bf16", "expert"),
    Variant("deepex-loop-bf16", deepex_loop, "bf16", "ours"),
    Variant("deepex-bf16", deepex, "bf16", "ours"),
)
VARIANTS = {variant.name: variant for variant in _TABLE}


def prepare(workload: Workload) -> tuple[nn.Module, Batch]:
    """The network and one batch, in the process as a script would have it."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    batch = workload.samples(workload.batch)
    return workload.network().train(), batch


def count_step(workload: Workload) -> int:
    """Floating-point operations of a forward and backward."""
    model, batch = prepare(workload)
    return count_flops(lambda: workload.loss(model, batch).backward())  # type: ignore[no-untyped-call]  # torch


def build_torch_optimiser(
    config: OptimiserConfig, model: nn.Module, *, fused: bool | None = None
) -> torch.optim.Optimizer:
    """The same optimiser as torch has it, with torch's defaults."""
    if config.name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=config.learning_rate, momentum=config.momentum, fused=fused)
    return torch.optim.Adam(model.parameters(), lr=config.learning_rate, fused=fused)


class _Endless(IterableDataset[Batch]):
    """The same batch for ever, at no cost."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def __iter__(self) -> Iterator[Batch]:
        while True:
            yield self.batch


def _endless(batch: Batch) -> DataLoader[Batch]:
    return DataLoader(_Endless(batch), batch_size=None)
