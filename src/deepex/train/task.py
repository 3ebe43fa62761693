"""Task: one science problem as a value. Data, model, loss, metric, target; it knows no ranks."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from torch import Tensor, nn

from deepex.data import Splits
from deepex.errors import ConfigError
from deepex.record.illustration import Illustration
from deepex.sample import Batch


@dataclass(frozen=True, kw_only=True)
class Target:
    """The quality at which a task counts as solved, and lesser ones on the way there, the cut-offs of its papers.

    >>> str(Target(metric="rmse", threshold=0.14)), Target(metric="rmse", threshold=0.14).reached(0.13)
    ('< 0.14', True)
    """

    metric: str
    threshold: float
    direction: Literal["min", "max"] = "min"
    cutoffs: tuple[float, ...] = ()

    def reached(self, value: float) -> bool:
        return value < self.threshold if self.direction == "min" else value > self.threshold

    def __str__(self) -> str:
        return f"{'<' if self.direction == 'min' else '>'} {self.threshold:g}"


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What backward starts from, the mean over the batch, and the parts it is made of, for the record."""

    total: Tensor
    parts: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if "loss" in self.parts:
            raise ConfigError("a part of the loss is called 'loss', which is the total's name. Give it another name.")


@dataclass(frozen=True, kw_only=True)
class Tally:
    """A metric as sums, so that batches and ranks add up: value = total / count, or its root.

    `beside` are further sums over the same count, for the record, such as those of a second metric.

    >>> Tally.merge([Tally(total=3.0, count=2), Tally(total=5.0, count=2)]).value
    2.0
    """

    total: float
    count: float
    root: bool = False
    beside: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def merge(cls, tallies: Iterable["Tally"]) -> "Tally":
        """The sum of tallies, correctly rounded, so that it does not depend on who counted what."""
        parts = list(tallies)
        return cls(
            total=math.fsum(tally.total for tally in parts),
            count=math.fsum(tally.count for tally in parts),
            root=parts[0].root,
            beside={name: math.fsum(tally.beside[name] for tally in parts) for name in parts[0].beside},
        )

    @property
    def value(self) -> float:
        mean = self.total / self.count
        return math.sqrt(mean) if self.root else mean

    @property
    def values_beside(self) -> dict[str, float]:
        """The further metrics, each by its mean."""
        return {name: total / self.count for name, total in self.beside.items()}


class Task(Protocol):
    """One science problem. Implementations are frozen dataclasses; their fields are the `[task]` of a recipe."""

    @property
    def name(self) -> str: ...

    @property
    def target(self) -> Target: ...

    def data(self) -> Splits:
        """Where samples come from; opened in each rank."""

    def model(self) -> nn.Module:
        """A new model with fresh weights."""

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """The loss of a batch."""

    def evaluate(self, model: nn.Module, batch: Batch) -> Tally:
        """The metric of a batch, as sums."""


@runtime_checkable
class Illustrated(Protocol):
    """A task with pictures of its own; a run asks for them at its end."""

    def illustrate(self, model: nn.Module, train: Batch, validation: Batch) -> Illustration:
        """Pictures and figures from samples of both splits."""
