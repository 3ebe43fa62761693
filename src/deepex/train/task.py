"""Task: one science problem as a value. Data, model, loss, metric, target; it knows no ranks."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar, runtime_checkable

from torch import Tensor, nn

from deepex.data import Splits
from deepex.errors import ConfigError
from deepex.record.illustration import Illustration
from deepex.sample import Batch

Direction = Literal["min", "max"]
V = TypeVar("V")


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a task is judged by, and the quality at which it counts as solved.

    Attributes:
        metric: its name.
        threshold: the value to pass; None for a task that just trains for its epochs.
        direction: whether small values are good, or large ones.
        cutoffs: lesser qualities on the way there, such as those of its papers.

    >>> str(Target(metric="rmse", threshold=0.14)), Target(metric="rmse", threshold=0.14).reached(0.13)
    ('< 0.14', True)
    """

    metric: str
    threshold: float | None = None
    direction: Direction = "min"
    cutoffs: tuple[float, ...] = ()

    def reached(self, value: float) -> bool:
        """Whether a value passes the threshold; none does where there is none."""
        return self.threshold is not None and self.is_better(value, self.threshold)

    def is_better(self, value: float, than: float) -> bool:
        """Whether one value of the metric is better than another; nothing is better than itself, and NaN than none."""
        return value < than if self.direction == "min" else value > than

    def __str__(self) -> str:
        return "none" if self.threshold is None else f"{'<' if self.direction == 'min' else '>'} {self.threshold:g}"


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


def expect(made: V, kind: type[V], what: str) -> V:
    """What a part of a task returned; anything else than what tasks return is an error that says so."""
    if isinstance(made, kind):
        return made
    raise ConfigError(
        f"the task's {what} returned a {type(made).__name__}. Allowed: a {kind.__name__}, as the protocol deepex.Task "
        "has it. Test yours with deepex.testing.task."
    )


@runtime_checkable
class Resolvable(Protocol):
    """A task whose data decides sizes of its model."""

    def resolved(self) -> Task:
        """The same task with those sizes written down, so that its model can be built where its data is not."""


@runtime_checkable
class Illustrated(Protocol):
    """A task with pictures of its own; a run asks for them at its end."""

    def illustrate(self, model: nn.Module, train: Batch, validation: Batch) -> Illustration:
        """Pictures and figures from samples of both splits."""
