"""The protocol of a fabric, and the fabric of a rank that is alone.

It knows tensors, and nothing of models.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from deepex.fabric.heartbeat import Heartbeat, SoloHeartbeat
from deepex.fabric.rendezvous import Rendezvous
from deepex.fabric.traffic import Traffic
from deepex.world import World

V = TypeVar("V")


class Work(Protocol):
    """A collective under way."""

    def wait(self) -> None:
        """Block until the buffer holds the result. Calling it again does nothing."""


class Fabric(Protocol):
    """Collectives that all ranks of a group call in the same order. A peer that never arrives raises, it does not hang.

    Attributes:
        name: what it is called in recipes and records.
        world: this rank's place in the group: its number and size are those of the group.
        traffic: what was carried so far.
        heartbeat: who of all ranks is alive, and whether one wants all to stop.
        rendezvous: where all ranks met; None for a rank that is alone.
        ranks: the group's members by their number among all ranks.
        overlaps: whether a collective goes on while the rank computes; if not, it happens when it is waited for.
    """

    name: str
    world: World
    traffic: Traffic
    heartbeat: Heartbeat
    rendezvous: Rendezvous | None
    ranks: Sequence[int]
    overlaps: bool

    def empty(self, numel: int) -> Tensor:
        """A float32 block on the rank's device, full of zeros, where this fabric averages fastest."""

    def mean_(self, tensor: Tensor) -> Work:
        """Replace a contiguous floating tensor by its mean over all ranks; the same bits on each."""

    def broadcast_(self, tensor: Tensor, source: int) -> Work:
        """Replace a contiguous tensor by that of rank `source`. In a group of two it is a message."""

    def gather(self, value: V) -> list[V]:
        """Every rank's value, in rank order, on every rank: also a barrier. For small things, outside the step."""

    def group(self, ranks: Sequence[int]) -> "Fabric":
        """A fabric among some of these ranks, numbered by their order in `ranks`; called by just those."""

    def close(self) -> None:
        """Leave. Peers that still wait get an error, not silence."""


class Done:
    """Work that is finished already."""

    def wait(self) -> None:
        return None


class SoloFabric:
    """The fabric of a world of one: every collective is the identity."""

    name = "none"
    overlaps = False

    def __init__(self, world: World) -> None:
        self.world = world
        self.traffic = Traffic()
        self.heartbeat: Heartbeat = SoloHeartbeat()
        self.rendezvous: Rendezvous | None = None
        self.ranks: Sequence[int] = [0]

    def empty(self, numel: int) -> Tensor:
        return torch.zeros(numel, device=self.world.torch_device)

    def mean_(self, tensor: Tensor) -> Work:
        return Done()

    def broadcast_(self, tensor: Tensor, source: int) -> Work:
        return Done()

    def gather(self, value: V) -> list[V]:
        return [value]

    def group(self, ranks: Sequence[int]) -> Fabric:
        return self

    def close(self) -> None:
        return None
