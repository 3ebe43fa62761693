"""A program of the input benchmark: a real run of a small residual network on packed images.

`python -m deepex.bench.input.run PACKED OUT EPOCHS [MEMORY_GIB]` writes the run directory OUT.
"""

import sys
from pathlib import Path

from torch import Tensor, nn
from torch.nn import functional

from deepex.data import DataConfig, Preparation
from deepex.data.feeding.convert import Convert
from deepex.launch.start import start
from deepex.optim import OptimiserConfig
from deepex.sample import Batch
from deepex.tasks.own import task
from deepex.train.recipe import Recipe, StopConfig

CLASSES = 10


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x + self.body(x))


def build_network() -> nn.Module:
    """A network so small that its steps are short, and input is hard to hide behind them."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 7, stride=4, padding=3),
        Block(16),
        nn.MaxPool2d(2),
        Block(16),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, CLASSES),
    )


def classify(model: nn.Module, batch: Batch) -> Tensor:
    return functional.cross_entropy(model(batch["image"]), batch["label"])


def main() -> None:
    packed, out, epochs, *memory = sys.argv[1:]
    images = task(
        name="images",
        model=build_network,
        data=packed,
        loss=classify,
        preparation=Preparation(convert={"image": Convert(scale=(255.0,))}),
    )
    recipe = Recipe(
        task=images,
        data=DataConfig(batch=64, memory_gib=float(memory[0]) if memory else None),
        optimiser=OptimiserConfig(learning_rate=1e-3),
        stop=StopConfig(epochs=int(epochs)),
    )
    start(recipe, Path(out), "quiet")


if __name__ == "__main__":
    main()
