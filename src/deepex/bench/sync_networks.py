"""What ranks of the sync benchmark train: ResNet-18 where they share a machine, a perceptron where a slow line is
between them, and one that is done in no time to try the benchmark itself. Samples are random and in memory."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from deepex.bench.workloads import SGD, Workload, classify, regress

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # width, and stride of the first of two blocks
SIDE, CLASSES = 64, 1000
WIDTHS = (1024, 1536, 1536, 1024)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut; a projection stands in the shortcut where shapes differ."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.projection: nn.Module = nn.Identity()
        if stride != 1 or channels != width:
            self.projection = nn.Sequential(
                nn.Conv2d(channels, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        out += self.projection(x)
        result: Tensor = self.relu(out)
        return result


class ResNet18(nn.Module):
    """ResNet-18 with 11,689,512 weights, as everybody has it.

    >>> sum(parameter.numel() for parameter in ResNet18().parameters())
    11689512

    Reference: He et al., Deep residual learning for image recognition, CVPR 2016.
    """

    layout = "contiguous"  # said, not timed, so that all variants have the same; at batch 2 it is 1.4 times as fast

    def __init__(self) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        channels = 64
        for width, stride in STAGES:
            blocks += [BasicBlock(channels, width, stride), BasicBlock(width, width, 1)]
            channels = width
        self.body = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
            *blocks,
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(channels, CLASSES),
        )

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.body(images)
        return logits


def build_perceptron(widths: tuple[int, ...] = WIDTHS) -> nn.Sequential:
    """Matrices with rectifiers between them; no statistics, so that all that ranks exchange is gradients or weights.

    >>> sum(parameter.numel() for parameter in build_perceptron().parameters())
    5509120
    """
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers[:-1])


def _vectors(width: int, count: int) -> dict[str, Tensor]:
    return {"x": torch.randn(count, width), "y": torch.randn(count, width)}


NETWORKS: dict[str, Workload] = {
    "resnet18": Workload(
        title=f"ResNet-18 3×{SIDE}×{SIDE}, batch 2 a rank, 46.8 MB of gradients",
        network=ResNet18,
        samples=lambda count: {"x": torch.randn(count, 3, SIDE, SIDE), "y": torch.randint(CLASSES, (count,))},
        loss=classify,
        batch=2,
        optimiser=SGD,
    ),
    "perceptron": Workload(
        title="perceptron 1024-1536-1536-1024, batch 384 a rank, 22.0 MB of gradients",
        network=build_perceptron,
        samples=lambda count: _vectors(WIDTHS[0], count),
        loss=regress,
        batch=384,
        optimiser=SGD,
    ),
    "tiny": Workload(
        title="perceptron 64-128-64, batch 8 a rank",
        network=lambda: build_perceptron((64, 128, 64)),
        samples=lambda count: _vectors(64, count),
        loss=regress,
        batch=8,
        optimiser=SGD,
    ),
}
