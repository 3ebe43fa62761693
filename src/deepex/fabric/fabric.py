"""The protocol of a fabric, and the fabric of a rank that is alone. It knows tensors, and nothing of models."""

from typing import Protocol, TypeVar

from torch import Tensor

from deepex.world import World

V = TypeVar("V")


class Work(Protocol):
    """A collective under way."""

    def wait(self) -> None:
        """Block until the buffer holds the result."""


class Fabric(Protocol):
    """Collectives that every rank calls in the same order. A peer that never comes raises, it does not hang."""

    name: str
    world: World

    def mean_(self, tensor: Tensor) -> Work:
        """Replace a contiguous floating tensor by its mean over all ranks; the same bits on each."""

    def broadcast_(self, tensor: Tensor, source: int) -> Work:
        """Replace a contiguous tensor by that of rank `source`."""

    def gather(self, value: V) -> list[V]:
        """Every rank's value, in rank order, on every rank. For small things, outside the step."""

    def barrier(self) -> None:
        """Wait until every rank is here."""


class Done:
    """Work that is finished already."""

    def wait(self) -> None:
        return None


class SoloFabric:
    """The fabric of a world of one: every collective is the identity."""

    name = "none"

    def __init__(self, world: World) -> None:
        self.world = world

    def mean_(self, tensor: Tensor) -> Work:
        return Done()

    def broadcast_(self, tensor: Tensor, source: int) -> Work:
        return Done()

    def gather(self, value: V) -> list[V]:
        return [value]

    def barrier(self) -> None:
        return None
