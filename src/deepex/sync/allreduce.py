"""`allreduce`: synchronous training, the gradient averaged over all ranks in every step."""

from typing import Self

from deepex.errors import ConfigError
from deepex.fabric import Fabric
from deepex.replica import Replica


class AllReduce:
    """Average the whole gradient block after every backward.

    g <- (1/P) sum_p g_p, then every replica makes the same update. Weights stay equal bit for bit; batch-norm
    statistics follow each rank's own samples and are averaged by `drain`.
    """

    staleness = 0

    @classmethod
    def parse(cls, argument: str) -> Self:
        if argument:
            raise ConfigError(f"sync 'allreduce:{argument}': allreduce takes no argument. Write --sync allreduce.")
        return cls()

    def prepare(self, replica: Replica, fabric: Fabric) -> None:
        self.replica, self.fabric = replica, fabric
        fabric.broadcast_(replica.block, source=0).wait()

    def mix_gradients(self, step: int) -> None:
        self.fabric.mean_(self.replica.gradients).wait()

    def mix_weights(self, step: int) -> None:
        return None

    def drain(self) -> None:
        if self.replica.statistics.numel():
            self.fabric.mean_(self.replica.statistics).wait()
