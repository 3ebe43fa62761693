"""`local:H` and `local:epoch`: ranks train alone and average their weights now and then, in one call."""

from typing import Self

from deepex.errors import ConfigError
from deepex.fabric import Fabric
from deepex.replica import Replica


class Local:
    """Local SGD: H steps alone, then the mean of all replicas.

    w <- (1/P) sum_p w_p after every H steps (`local:H`), or only when an epoch ends (`local:epoch`). Weights and
    batch-norm statistics stand in one block, so a sync is ONE all-reduce. The optimiser's moments stay with their
    rank: they describe the gradients that this rank sees, and the average of weights leaves them valid.

    Arguments:
        interval: H, or None for once an epoch.

    >>> Local.parse("epoch").interval is None
    True

    Reference: Stich, Local SGD converges fast and communicates little, ICLR 2019.
    """

    staleness = 0

    def __init__(self, interval: int | None) -> None:
        self.interval = interval
        self._alone = True  # whether replicas may differ; a resumed run may start in mid-interval

    @classmethod
    def parse(cls, argument: str) -> Self:
        if argument == "epoch":
            return cls(None)
        if not argument.isdecimal() or int(argument) < 1:
            raise ConfigError(
                f"sync 'local:{argument}': H must be a whole number of steps from 1, or 'epoch'. "
                "Write --sync local:8 or --sync local:epoch."
            )
        return cls(int(argument))

    def prepare(self, replica: Replica, fabric: Fabric) -> None:
        self.replica, self.fabric = replica, fabric
        fabric.broadcast_(replica.block, source=0).wait()

    def mix_gradients(self, step: int) -> None:
        return None

    def mix_weights(self, step: int) -> None:
        self._alone = True
        if self.interval is not None and (step + 1) % self.interval == 0:
            self.drain()

    def drain(self) -> None:
        if self._alone:
            self.fabric.mean_(self.replica.block).wait()
        self._alone = False
