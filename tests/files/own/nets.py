"""A network of a user's own, called with the sizes of the data."""

from typing import Any

from kepler import interrupt_once  # type: ignore[import-not-found]  # it stands beside this file
from torch import Tensor, nn


class Small(nn.Module):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels, height, width = shape
        inside = 2 * ((height - 3) // 3 + 1) * ((width - 3) // 3 + 1)
        convolution = nn.Conv2d(channels, 2, 3, stride=3)
        self.layers = nn.Sequential(convolution, nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(inside, classes))

    def forward(self, x: Tensor) -> Tensor:
        interrupt_once(self)
        logits: Tensor = self.layers(x)
        return logits


class Strange(nn.Linear):
    def __init__(self) -> None:
        super().__init__(2, 2)


def nothing(**sizes: Any) -> None:
    pass
