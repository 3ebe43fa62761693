"""What travels when gradients or changes are averaged: numbers as they are, or fewer bytes that stand for them."""

from typing import Protocol

from torch import Tensor

from deepex.fabric import Fabric, Work
from deepex.replica import Replica


class Compressor(Protocol):
    """A way to average slices of one block of gradients, or of changes of weights, over the ranks of a fabric.

    Attributes:
        exact: whether the mean is that of the numbers as they are. If not, a strategy sends changes, never weights.
        delays: whether a part of a number may travel in a later call (error feedback), so that nothing bounds its lag.
        name: as it is written behind a `+`; empty for the plain compressor.
    """

    exact: bool
    delays: bool
    name: str

    def prepare(self, replica: Replica, fabric: Fabric) -> None:
        """Called once, with the replica whose gradients or changes will travel, and the ranks to average over."""

    def mean_(self, tensor: Tensor, start: int) -> Work:
        """Replace a slice, which begins at element `start` of the block and covers whole parameters, by its mean.

        The same bits come out on every rank. The slice must be left alone until the work is waited for.
        """

    def state(self) -> dict[str, Tensor]:
        """What is kept for later calls; live tensors, to be saved and copied back."""


class Uncompressed:
    """Numbers as they are."""

    exact = True
    delays = False
    name = ""

    def prepare(self, replica: Replica, fabric: Fabric) -> None:
        self.fabric = fabric

    def mean_(self, tensor: Tensor, start: int) -> Work:
        return self.fabric.mean_(tensor)

    def state(self) -> dict[str, Tensor]:
        return {}
