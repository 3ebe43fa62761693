"""How the learning rate changes over a run: a warm-up, then constant, falling by steps, or along a cosine.

The rate is a pure function of the step, so a resumed run goes on with the right one. It knows no optimiser.
"""

import math
from dataclasses import dataclass
from typing import Literal

from deepex.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """The share of `optimiser.learning_rate` that holds at each moment, in epochs since the start.

    All begin with `warmup_epochs` in which the share grows linearly from `warmup_from` to 1. After it, `constant`
    stays; `cosine` falls to `final` at the last epoch; `steps` multiplies by each of `factors` at its milestone.

    Reference: Goyal et al., Accurate, large minibatch SGD, arXiv:1706.02677 (2017) for the warm-up; Loshchilov and
    Hutter, SGDR, ICLR 2017 for the cosine.
    """

    name: Literal["constant", "cosine", "steps"] = "constant"
    warmup_epochs: float = 0.0
    warmup_from: float = 0.0
    final: float = 0.0
    milestones: tuple[float, ...] = ()
    factors: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.warmup_epochs >= 0:
            raise ConfigError(f"schedule.warmup_epochs = {self.warmup_epochs}. Allowed: numbers from 0.")
        for key in ("warmup_from", "final"):
            if not 0 <= getattr(self, key) <= 1:
                raise ConfigError(f"schedule.{key} = {getattr(self, key)}. Allowed: shares of the rate, from 0 to 1.")
        if len(self.milestones) != len(self.factors) or list(self.milestones) != sorted(self.milestones):
            raise ConfigError(
                f"schedule.milestones = {list(self.milestones)}, schedule.factors = {list(self.factors)}. Allowed: "
                "epochs in rising order, and a factor for each, as in milestones=32,64 factors=0.25,0.5."
            )
        if any(not factor > 0 for factor in self.factors):
            raise ConfigError(f"schedule.factors = {list(self.factors)}. Allowed: numbers above 0.")
        if bool(self.milestones) != (self.name == "steps"):
            raise ConfigError(
                f"schedule.name={self.name} with milestones {list(self.milestones)}. Allowed: milestones with "
                "name=steps, and only there."
            )

    def share(self, epoch: float, epochs: int) -> float:
        """The share of the rate at a moment of a run of `epochs`.

        >>> schedule = ScheduleConfig(name="cosine", warmup_epochs=2.0)
        >>> [round(schedule.share(epoch, 10), 2) for epoch in (0, 1, 2, 6, 10)]
        [0.0, 0.5, 1.0, 0.5, 0.0]
        """
        if epoch < self.warmup_epochs:
            return self.warmup_from + (1 - self.warmup_from) * epoch / self.warmup_epochs
        if self.name == "steps":
            return math.prod(
                factor for milestone, factor in zip(self.milestones, self.factors, strict=True) if epoch >= milestone
            )
        if self.name == "cosine":
            done = min(1.0, (epoch - self.warmup_epochs) / max(epochs - self.warmup_epochs, 1e-9))
            return self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * done))
        return 1.0
