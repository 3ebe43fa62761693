"""The workloads of `deepex bench step`: five networks of science, and a tiny one where only the framework costs.

Each is a task on random samples in memory: what is measured is the step, not the learning.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from deepex.data import DataConfig
from deepex.models.cosmoflow import CosmoFlow
from deepex.models.cvae import CVAE
from deepex.models.deeplab import DeepLab
from deepex.models.resnet import ResNet50
from deepex.optim import OptimiserConfig
from deepex.sample import Batch
from deepex.tasks.own import task
from deepex.tasks.protein import Protein
from deepex.train.recipe import Recipe

SGD = OptimiserConfig(name="sgd", learning_rate=1e-3, momentum=0.9)
ADAM = OptimiserConfig(name="adam", learning_rate=1e-4)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A network, its batch and its optimiser. `steps` make an epoch, and are measured in one turn."""

    title: str
    network: Callable[[], nn.Module]
    samples: Callable[[int], Batch]
    loss: Callable[[nn.Module, Batch], Tensor]
    batch: int
    optimiser: OptimiserConfig
    steps: int = 1

    def recipe(self) -> Recipe:
        """The workload as a recipe, with as many samples as an epoch takes and one in five more, which is held out."""
        train = self.batch * self.steps
        arrays = self.samples(train + max(1, train // 4))
        own = task(name="bench", model=self.network, data=arrays, loss=self.loss)
        return Recipe(task=own, data=DataConfig(batch=self.batch), optimiser=self.optimiser)


def classify(model: nn.Module, batch: Batch) -> Tensor:
    return functional.cross_entropy(model(batch["x"]), batch["y"])


def regress(model: nn.Module, batch: Batch) -> Tensor:
    return functional.mse_loss(model(batch["x"]), batch["y"])


def encode(model: nn.Module, batch: Batch) -> Tensor:
    """The evidence bound, as the protein task has it."""
    return Protein().loss(model, batch).total


def _images(shape: tuple[int, ...], classes: int) -> Callable[[int], Batch]:
    return lambda count: {"x": torch.randn(count, *shape), "y": torch.randint(classes, (count,))}


def _cosmoflow(side: int, batch: int) -> Workload:
    shape = (4, side, side, side)
    return Workload(
        title=f"CosmoFlow 4×{side}³, batch {batch}",
        network=lambda: CosmoFlow(shape=shape),
        samples=lambda count: {"x": torch.rand(count, *shape), "y": torch.rand(count, 4) * 2 - 1},
        loss=regress,
        batch=batch,
        optimiser=SGD,
    )


WORKLOADS: dict[str, Workload] = {
    "resnet50": Workload(
        title="ResNet-50 1×120×85, batch 32",
        network=lambda: ResNet50(shape=(1, 120, 85), classes=27),
        samples=_images((1, 120, 85), 27),
        loss=classify,
        batch=32,
        optimiser=SGD,
    ),
    "cosmoflow64": _cosmoflow(64, 4),
    "cosmoflow128": _cosmoflow(128, 1),
    "cvae": Workload(
        title="CVAE 28×28, 26 M weights, batch 64",
        network=lambda: CVAE(side=28, latent=3, size="paper"),
        samples=lambda count: {"contact_map": (torch.rand(count, 28, 28) < 0.3).float()},
        loss=encode,
        batch=64,
        optimiser=ADAM,
    ),
    "deeplab": Workload(
        title="DeepLabv3+ 16×192×288, batch 2",
        network=lambda: DeepLab(shape=(16, 192, 288), classes=3),
        samples=lambda count: {"x": torch.randn(count, 16, 192, 288), "y": torch.randint(3, (count, 192, 288))},
        loss=classify,
        batch=2,
        optimiser=ADAM,
    ),
    "tiny": Workload(
        title="MLP 16-64-64-1, batch 32",
        network=lambda: nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)),
        samples=lambda count: {"x": torch.randn(count, 16), "y": torch.randn(count, 1)},
        loss=regress,
        batch=32,
        optimiser=ADAM,
        steps=300,
    ),
}
SCIENCE = tuple(name for name in WORKLOADS if name != "tiny")
