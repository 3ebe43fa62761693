"""Recipe: one complete run as a value, from TOML and back."""

from dataclasses import dataclass, field, replace

from deepex import sync as strategies
from deepex.data import DataConfig
from deepex.errors import ConfigError
from deepex.fabric import FabricName
from deepex.optim import OptimiserConfig, ScheduleConfig
from deepex.train.compute.layout import LayoutChoice
from deepex.train.compute.precision import Precision
from deepex.train.task import Target, Task


@dataclass(frozen=True, kw_only=True)
class StopConfig:
    """When to stop: after `epochs`, or as soon as the metric passes `target` (none: the task's own target).

    Without `at_target` the epoch that passes it is written down and the run goes on to its last, as a schedule wants
    that ends with small steps.
    """

    epochs: int = 50
    target: float | None = None
    at_target: bool = True

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ConfigError(f"stop.epochs = {self.epochs}. Allowed: whole numbers from 1.")


@dataclass(frozen=True, kw_only=True)
class WorldConfig:
    """How many ranks, what they talk by, and how long one waits for another before it gives up."""

    ranks: int = 1
    fabric: FabricName = "auto"
    timeout_seconds: float = 300.0

    def __post_init__(self) -> None:
        if self.ranks < 1:
            raise ConfigError(f"world.ranks = {self.ranks}. Allowed: whole numbers from 1, as in --ranks 2.")
        if self.timeout_seconds <= 0:
            raise ConfigError(f"world.timeout_seconds = {self.timeout_seconds}. Allowed: numbers above 0.")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A run as a value.

    `precision` is what a step computes with, `layout` how convolutions keep their images (`auto`: as the network
    declares, or as a clock finds), `keep_heap` whether freed memory stays with the process. `checkpoint_epochs` is how
    many epochs lie between two checkpoints. `code` is where a task of a user's own comes from, as in `file.py:name`;
    nothing for a task in deepex's own table.
    """

    task: Task
    data: DataConfig = field(default_factory=DataConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    stop: StopConfig = field(default_factory=StopConfig)
    world: WorldConfig = field(default_factory=WorldConfig)
    sync: str = strategies.DEFAULT
    precision: Precision = "fp32"
    layout: LayoutChoice = "auto"
    keep_heap: bool = True
    seed: int = 0
    checkpoint_epochs: int = 10
    code: str = ""

    def __post_init__(self) -> None:
        strategy = strategies.parse(self.sync)
        strategy.num_training_ranks(self.world.ranks)  # raises if it can't work with so many
        if self.precision == "fp16" and strategy.traits.shares_gradients and strategy.traits.staleness:
            raise ConfigError(
                f"sync '{self.sync}' applies gradients of an earlier step, for which fp16 may have scaled the loss "
                f"otherwise. Use precision bf16 or fp32 with it, or --sync {strategies.DEFAULT}."
            )
        if self.schedule.warmup_epochs > self.stop.epochs:
            raise ConfigError(
                f"schedule.warmup_epochs = {self.schedule.warmup_epochs:g} with stop.epochs = {self.stop.epochs}. "
                "Allowed: a warm-up that ends within the run."
            )
        if self.seed < 0:
            raise ConfigError(f"seed = {self.seed}. Allowed: whole numbers from 0.")
        if self.checkpoint_epochs < 1:
            raise ConfigError(f"checkpoint_epochs = {self.checkpoint_epochs}. Allowed: whole numbers from 1.")

    def learning_rate(self, epoch: float) -> float:
        """The rate at a moment, in epochs since the start."""
        return self.optimiser.learning_rate * self.schedule.share(epoch, self.stop.epochs)

    @property
    def target(self) -> Target:
        """The target of this run: the task's, at the recipe's own threshold if it sets one."""
        own = self.task.target
        if self.stop.target is None:
            return own
        return replace(own, threshold=self.stop.target)
