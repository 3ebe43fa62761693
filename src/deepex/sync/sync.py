"""The protocol of a strategy, and what a strategy is given to work with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from deepex.fabric import Fabric
from deepex.replica import Replica
from deepex.sync.noise import NoiseMeter


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a strategy works with.

    Attributes:
        replica: this rank's copy of the model.
        fabric: how it talks to the others.
        moments: the optimiser's state by name; those as long as the weights belong to them, element by element.
        steps_per_epoch: steps between two calls of `drain`.
        batch: samples of one rank in one step.
        momentum: how much of a step's change goes on in the next.
        sends_early: whether gradients may leave while backward runs: not if another strategy mixes them first.
        measures_noise: whether to look at the noise of gradients: not if another strategy does.
    """

    replica: Replica
    fabric: Fabric
    moments: Mapping[str, Tensor]
    steps_per_epoch: int
    batch: int
    momentum: float = 0.0
    sends_early: bool = True
    measures_noise: bool = True


class Sync(Protocol):
    """The only places where replicas talk. The step calls them; a strategy never contains the step.

    Attributes:
        staleness: after how many steps, at the latest, a gradient has reached every replica; 0 is in the same step, and
            None means that nothing bounds it.
        shares_gradients: whether ranks apply one mean gradient, so that one without a batch applies it too.
        repeats: whether the same recipe gives the same bits again.
        lockstep: the ranks that make the same step at the same time; known after `prepare`.
        notes: what it found out and chose, for the record; plain values.
        noise: what it has seen of the noise of gradients; nothing where it can't tell.
    """

    staleness: int | None
    shares_gradients: bool
    repeats: bool
    lockstep: Fabric
    notes: dict[str, Any]
    noise: NoiseMeter

    def trainers(self, num_ranks: int) -> int:
        """How many of so many ranks train, the first ones; ConfigError if it can't work with that number.

        A world of one is always plain training.
        """

    def prepare(self, setting: Setting) -> None:
        """Make all replicas equal to rank 0's; called once, before the first step."""

    def mix_gradients(self, step: int) -> bool:
        """After backward, before the update of step `step` (counted over the whole run); whether there is an update."""

    def mix_weights(self, step: int) -> bool:
        """After the update of step `step`; whether other replicas have changed this one's weights."""

    def drain(self) -> None:
        """Finish what is pending: afterwards all replicas hold the same weights and statistics, bit for bit."""

    def state(self) -> dict[str, Tensor]:
        """All that it remembers from step to step. Copied back into the same tensors it goes on exactly."""
