"""What ranks of the sync benchmark train: ResNet-18 where they share a machine, a perceptron where a slow line is
between them, and one that is done in no time to try the benchmark itself. Samples are random and in memory."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from deepex.bench.step.workloads import SGD, Workload, classify, regress
from deepex.models.resnet import ResNet18

SIDE, CLASSES = 64, 1000
WIDTHS = (1024, 1536, 1536, 1024)


def build_resnet18() -> ResNet18:
    """ResNet-18 with 11,689,512 weights, as everybody has it."""
    network = ResNet18(shape=(3, SIDE, SIDE), classes=CLASSES)
    network.layout = "contiguous"  # said, not timed, so that all variants have the same; at batch 2 1.4 times as fast
    return network


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
        network=build_resnet18,
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
