"""The protocol of a strategy, and the table that turns its written form (`local:8`) into one."""

from collections.abc import Callable
from typing import Protocol

from deepex.errors import ConfigError, unknown
from deepex.fabric import Fabric
from deepex.replica import Replica
from deepex.sync.allreduce import AllReduce
from deepex.sync.local import Local


class Sync(Protocol):
    """The only places where replicas talk.

    Attributes:
        staleness: steps that an applied gradient may lag; 0 is exact.
    """

    staleness: int

    def prepare(self, replica: Replica, fabric: Fabric) -> None:
        """Make all replicas equal to rank 0's; called once, before the first step."""

    def mix_gradients(self, step: int) -> None:
        """After backward, before the update of step `step` (counted from 0 over the whole run)."""

    def mix_weights(self, step: int) -> None:
        """After the update of step `step`."""

    def drain(self) -> None:
        """Finish what is pending: afterwards all replicas hold the same weights and statistics, bit for bit."""


STRATEGIES: dict[str, Callable[[str], Sync]] = {"allreduce": AllReduce.parse, "local": Local.parse}


def parse(text: str) -> Sync:
    """The strategy that `text` names.

    >>> parse("local:8").interval
    8
    """
    name, _, argument = text.partition(":")
    if name not in STRATEGIES:
        raise ConfigError(unknown("sync", text, ["allreduce", "local:H", "local:epoch"]))
    return STRATEGIES[name](argument)
