"""`hybrid:G`: groups that are synchronous inside and meet by parameter servers, each at its own pace."""

from dataclasses import replace
from typing import Any, Self

from torch import Tensor

from deepex.fabric import Fabric
from deepex.sync.allreduce import AllReduce, mean_statistics
from deepex.sync.compressors.compressor import Compressor
from deepex.sync.parameter_server import Exchange
from deepex.sync.spec import SyncSpec
from deepex.sync.sync import SyncContext, SyncTraits


class Hybrid:
    """G synchronous groups; a slow one does not hold up the others.

    Inside a group the gradient is averaged in every step, as in `allreduce`. After the update the group's first rank
    sends the change d of its weights since the last time to the parameter servers, which hold W, and takes W back:

        W <- W + d;  w <- W

    A change is added in full whenever it comes, so an epoch makes G times as many updates of W as a group makes steps,
    on weights that other groups have moved meanwhile: how far, the record has as a histogram. The optimiser's moments
    stay with their group. `drain` waits for all groups and gives W to all ranks.

    Arguments:
        groups: G.
        servers: how many slices W is cut into, each served by a rank of its own.
        own_ranks: whether servers live on the last ranks, which then don't train, or with the groups' first ranks.
        every: steps between two exchanges.
        compressor: what travels inside a group.
        spec: as it was written, for errors.

    References: Kurth et al., Deep learning at 15PF, SC 2017; Dean et al., Large scale distributed deep networks, 2012.
    """

    def __init__(
        self,
        groups: int,
        *,
        servers: int = 1,
        own_ranks: bool = False,
        every: int = 1,
        compressor: Compressor | None = None,
        spec: SyncSpec | None = None,
    ) -> None:
        self.groups, self.servers, self.own_ranks, self.every = groups, servers, own_ranks, every
        self.spec = spec or SyncSpec(name="hybrid", argument=str(groups))
        self.traits = SyncTraits(
            shares_gradients=True, repeats=groups == 1, interval=every, inner_interval=1, compresses_inner=True
        )
        self.inner = AllReduce(compressor)
        self.lockstep: Fabric
        self.notes: dict[str, Any] = {}
        self.noise = self.inner.noise  # within a group

    @classmethod
    def parse(cls, spec: SyncSpec, compressor: Compressor) -> Self:
        spec.takes("servers", "place", "every", argument=True)
        if not spec.argument.isdecimal() or int(spec.argument) < 1:
            raise spec.wrong("G must be a whole number of groups from 1", "Write --sync hybrid:2.")
        groups = int(spec.argument)
        own_ranks = spec.choice("place", ("group", "own")) == "own"
        servers = spec.whole("servers", 1 if own_ranks else groups)
        if servers > groups and not own_ranks:
            raise spec.wrong(
                f"{servers} servers don't fit on the first ranks of {groups} groups",
                f"Use at most servers={groups}, or place=own, which gives them ranks of their own.",
            )
        every = spec.whole("every", 1)
        return cls(groups, servers=servers, own_ranks=own_ranks, every=every, compressor=compressor, spec=spec)

    def num_training_ranks(self, num_ranks: int) -> int:
        if num_ranks == 1:
            return 1
        training = num_ranks - self.servers if self.own_ranks else num_ranks
        if training < self.groups or training % self.groups:
            can = [str(number) for number in range(1, max(training, 1) + 1) if training % number == 0]
            kept = f", {self.servers} of them for servers," if self.own_ranks else ""
            raise self.spec.wrong(
                f"{num_ranks} ranks{kept} can't be shared out evenly among {self.groups} groups",
                f"Allowed numbers of groups: {', '.join(can) if training > 0 else 'none; use more ranks'}.",
            )
        return training

    def prepare(self, context: SyncContext) -> None:
        self.replica, self.fabric = context.replica, context.fabric
        rank, size = self.fabric.world.rank, self.fabric.world.size
        training = self.num_training_ranks(size)
        self.trains, self._alone = rank < training, size == 1
        self.fabric.broadcast_(self.replica.block, source=0).wait()
        length = training // self.groups if not self._alone else 1
        first = rank // length * length
        members = range(first, first + length) if self.trains else [rank]
        self.lockstep = self.fabric.group(members)
        self.leads = self.trains and rank == first
        if self.trains:
            self.inner.prepare(replace(context, fabric=self.lockstep))
        if not self._alone:
            leaders = range(0, training, length)
            homes = range(training, size) if self.own_ranks else leaders[: self.servers]
            self.exchange = Exchange(self.fabric, self.replica.weights, leaders, homes)
            self.notes = {"groups": self.groups, "ranks_of_a_group": length, "server_ranks": list(homes)}

    def mix_gradients(self, step: int) -> bool:
        if not self._alone:
            self.exchange.open()
        return self.inner.mix_gradients(step) if self.trains else False

    def mix_weights(self, step: int) -> bool:
        if self._alone or not self.trains or (step + 1) % self.every:
            return False
        if self.leads:
            self.exchange.push_and_pull(self.replica.weights)
        self.lockstep.broadcast_(self.replica.weights, source=0).wait()
        return True

    def drain(self) -> None:
        if self._alone:
            return
        self.exchange.open()
        if self.leads:
            self.exchange.push_and_pull(self.replica.weights, leave=True)
        self.exchange.close()
        mean_statistics(self.replica.statistics, self.fabric)  # by then all groups have left their servers
        self.fabric.gather(None)
        self.exchange.spread(self.replica.weights)
        self.notes["staleness"] = add_up(self.fabric.gather(self.exchange.staleness if self.leads else {}))

    def state(self) -> dict[str, Tensor]:
        return {} if self._alone else {**self.exchange.state(), **self.inner.state()}


def add_up(histograms: list[dict[int, int]]) -> dict[str, int]:
    """One histogram of several: how often an update came how many updates late.

    >>> add_up([{0: 2}, {0: 1, 3: 1}])
    {'0': 3, '3': 1}
    """
    lags = sorted({lag for histogram in histograms for lag in histogram})
    return {str(lag): sum(histogram.get(lag, 0) for histogram in histograms) for lag in lags}
