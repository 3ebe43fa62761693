"""`async`: no barrier at all. Ranks of a node share one weight block without locks; nodes meet by parameter servers."""

from typing import Any, Self

import torch
from torch import Tensor

from deepex.errors import ConfigError
from deepex.fabric import Fabric, SharedFabric, inside_node
from deepex.sync.compressors.compressor import Compressor
from deepex.sync.hybrid import add_up
from deepex.sync.noise import NoiseMeter
from deepex.sync.parameter_server import Exchange
from deepex.sync.spec import SyncSpec
from deepex.sync.sync import SyncContext, SyncTraits


class Asynchronous:
    """Hogwild inside a node: every rank updates the same weights in place, whenever it has a gradient.

    All replicas of a node are views into ONE block, so w <- w - eta g is seen by the others at once, even in the middle
    of their forward. Nothing is locked: an update that meets another may lose a few of its elements. How many updates
    of others fell between a rank's reading and its writing is counted, and the record has the histogram. The
    optimiser's moments stay with their rank, batch-norm statistics are in the block. Between nodes the first rank of
    each exchanges the node's change with parameter servers, as in `hybrid`. Runs don't repeat bit for bit.

    Arguments:
        every: steps of a node's first rank between two exchanges with other nodes.

    References: Niu et al., Hogwild!, NeurIPS 2011; Nichols et al., MagmaDNN, 2019; Dean et al., 2012, for servers.
    """

    def __init__(self, every: int = 1) -> None:
        self.every = every
        self.traits = SyncTraits(interval=every, inner_interval=1)
        self.lockstep: Fabric
        self.notes: dict[str, Any] = {}
        self.noise = NoiseMeter()
        self.histogram: dict[int, int] = {}

    @classmethod
    def parse(cls, spec: SyncSpec, compressor: Compressor) -> Self:
        spec.takes("every")
        if compressor.name:
            raise spec.wrong("async shares memory, there is no message to compress", "Write --sync async.")
        return cls(spec.whole("every", 1))

    def num_training_ranks(self, num_ranks: int) -> int:
        return num_ranks

    def prepare(self, context: SyncContext) -> None:
        self.replica, self.fabric = context.replica, context.fabric
        world = self.fabric.world
        self.fabric.broadcast_(self.replica.block, source=0).wait()
        self.lockstep = self.fabric.group([world.rank])
        self._exchange: Exchange | None = None
        self._counts = torch.zeros(1)
        if world.size == 1:
            return
        self._node = inside_node(self.fabric)
        if not isinstance(self._node, SharedFabric):
            raise ConfigError(
                "--sync async: ranks of one host share their weights, and these can't: they run on a GPU, as different "
                "users or in containers of their own. Use --sync hybrid:G, which needs no shared memory."
            )
        block = self._node.common(len(self.replica.block))
        if self._node.world.is_first:
            block.copy_(self.replica.block)
        self._node.gather(None)
        self.replica.move_to(block)
        self._counts = self._node.common(self._node.world.size)
        self._seen = 0.0
        hosts = self.fabric.gather(world.host)
        firsts = sorted({hosts.index(host) for host in hosts})
        if len(firsts) > 1:
            self._exchange = Exchange(self.fabric, self.replica.weights, firsts, firsts)
            self._pulled = torch.empty_like(self.replica.weights)
        self.notes = {"nodes": len(firsts), "ranks_of_a_node": self._node.world.size}

    def mix_gradients(self, step: int) -> bool:
        if self._exchange is not None:
            self._exchange.open()
        return True

    def mix_weights(self, step: int) -> bool:
        if self.fabric.world.size == 1:
            return False
        rank = self._node.world.rank
        self._counts[rank] += 1
        total = float(self._counts.sum())
        others = int(total - self._seen) - 1
        self.histogram[others] = self.histogram.get(others, 0) + 1
        self._seen = total
        if self._exchange is not None and rank == 0 and (step + 1) % self.every == 0:
            self._exchange_between_nodes()
        return True

    def drain(self) -> None:
        if self.fabric.world.size == 1:
            return
        self._node.gather(None)
        if self._exchange is not None:
            self._exchange.open()
            if self._node.world.is_first:
                self._exchange_between_nodes(leave=True)
            self._exchange.close()
            self.fabric.gather(None)
            self._pulled.copy_(self.replica.weights)
            self._exchange.spread(self._pulled)
            statistics = self.replica.statistics.clone()
            self.fabric.mean_(statistics).wait()
            if self._node.world.is_first:
                self.replica.weights.copy_(self._pulled)
                self.replica.statistics.copy_(statistics)
        histograms = self.fabric.gather(self.histogram)
        self.notes["staleness"] = add_up(histograms)

    def state(self) -> dict[str, Tensor]:
        return {} if self._exchange is None else self._exchange.state()

    def _exchange_between_nodes(self, *, leave: bool = False) -> None:
        """Exchange the node's change; what its other ranks do meanwhile is kept."""
        assert self._exchange is not None
        before = self.replica.weights.clone()
        self._pulled.copy_(before)
        self._exchange.push_and_pull(self._pulled, leave=leave)
        self.replica.weights.add_(self._pulled.sub_(before))
