"""The protocol of a strategy, what it promises, and what it is given to work with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from deepex.fabric import Fabric
from deepex.replica import Replica
from deepex.sync.noise import NoiseMeter


@dataclass(frozen=True, kw_only=True)
class SyncTraits:
    """What a strategy promises, known from its written form; without arguments, nothing.

    Ranks may sync on two levels: often inside a node or a group, and rarely between them.

    Attributes:
        staleness: after how many steps, at the latest, a gradient has reached every replica; 0 is in the same step.
            None if no number of steps bounds it, or if only the end of an epoch does.
        shares_gradients: whether ranks apply one mean gradient, so that one without a batch applies it too.
        repeats: whether the same recipe gives the same bits again.
        interval: steps between two syncs of all replicas; None if once an epoch, or not known before it runs.
        once_an_epoch: whether replicas only sync when an epoch ends.
        chooses_interval: whether it finds the interval by itself, as it runs.
        inner_interval: steps between two syncs inside a node or a group; None if there is one level only.
        compresses_inner: whether a compression is for messages inside a node or a group, not for those between them.
        hides_messages: whether a sync is waited for in a later step, so that its messages travel while ranks compute.
    """

    staleness: int | None = None
    shares_gradients: bool = False
    repeats: bool = False
    interval: int | None = None
    once_an_epoch: bool = False
    chooses_interval: bool = False
    inner_interval: int | None = None
    compresses_inner: bool = False
    hides_messages: bool = False


@dataclass(frozen=True, kw_only=True)
class SyncContext:
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
        traits: what it promises, before and after `prepare`.
        lockstep: the ranks that make the same step at the same time; known after `prepare`.
        notes: what it found out and chose, for the record; plain values. `as_run`, where it is there, is the whole
            strategy as it is written with what was found, so that a run from it has the same bits.
        noise: what it has seen of the noise of gradients; nothing where it can't tell.
    """

    traits: SyncTraits
    lockstep: Fabric
    notes: dict[str, Any]
    noise: NoiseMeter

    def num_training_ranks(self, num_ranks: int) -> int:
        """How many of so many ranks train, the first ones; ConfigError if it can't work with that number.

        A world of one is always plain training.
        """

    def prepare(self, context: SyncContext) -> None:
        """Make all replicas equal to rank 0's; called once, before the first step."""

    def mix_gradients(self, step: int) -> bool:
        """After backward, before the update of step `step` (counted over the whole run); whether there is an update."""

    def mix_weights(self, step: int) -> bool:
        """After the update of step `step`; whether other replicas have changed this one's weights."""

    def drain(self) -> None:
        """Finish what is pending: afterwards all replicas hold the same weights and statistics, bit for bit."""

    def state(self) -> dict[str, Tensor]:
        """All that it remembers from step to step. Copied back into the same tensors it goes on exactly."""
