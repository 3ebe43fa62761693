"""`hierarchical(INNER,OUTER)`: one strategy among the ranks of a node, another between nodes."""

from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor

from deepex.errors import ConfigError
from deepex.fabric import Fabric, inside_node
from deepex.sync.sync import Setting, Sync


class Hierarchical:
    """Inside a node first, then one rank of each node between nodes.

    With n ranks on each of N nodes, INNER mixes the n, by shared memory if they compute on CPUs. The first rank of each
    node then plays OUTER with the other firsts, and passes on to its node what came of it: a gradient, if OUTER mixes
    gradients, or weights. The network carries N messages instead of N n. INNER must keep its replicas equal (allreduce
    or lagged); OUTER may be allreduce, lagged, local or background. The mean of a node's means is the mean of all
    because nodes must have as many ranks each.

    Arguments:
        inner: what the ranks of a node do.
        outer: what the nodes do.

    Reference: Kurth et al., Exascale deep learning for climate analytics, SC 2018.
    """

    def __init__(self, inner: Sync, outer: Sync) -> None:
        self.inner, self.outer = inner, outer
        self.shares_gradients = outer.shares_gradients
        self.repeats = inner.repeats and outer.repeats
        stale = (inner.staleness, outer.staleness)
        self.staleness = None if stale[0] is None or stale[1] is None else stale[0] + stale[1]
        self.lockstep: Fabric
        self.notes: dict[str, Any] = {}
        self.noise = inner.noise  # within a node

    @classmethod
    def of(cls, text: str, inner: Sync, outer: Sync) -> Self:
        """The composition, if these two can be composed."""
        if not inner.shares_gradients or inner.staleness is None:
            raise ConfigError(
                f"sync '{text}': the inner strategy must keep the replicas of a node equal in every step. "
                "Allowed inside: allreduce, lagged. Write --sync 'hierarchical(allreduce,local:8)'."
            )
        if not outer.repeats or isinstance(outer, Hierarchical):
            raise ConfigError(
                f"sync '{text}': between nodes there can be allreduce, lagged, local:H or background:H. "
                "Write --sync 'hierarchical(allreduce,local:8)'."
            )
        return cls(inner, outer)

    def trainers(self, num_ranks: int) -> int:
        return num_ranks

    def prepare(self, setting: Setting) -> None:
        self.replica, self.lockstep = setting.replica, setting.fabric
        hosts = setting.fabric.gather(setting.fabric.world.host)
        firsts = sorted({hosts.index(host) for host in hosts})
        counts = {host: hosts.count(host) for host in hosts}
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{host}: {count}" for host, count in counts.items())
            raise ConfigError(f"hierarchical needs as many ranks on each node, and was given {told}. Use allreduce.")
        self._node = inside_node(setting.fabric)
        self._leads = self._node.world.is_first
        self.inner.prepare(replace(setting, fabric=self._node))
        if self._leads:
            between = setting.fabric.group(firsts)
            self.outer.prepare(replace(setting, fabric=between, sends_early=False, measures_noise=False))
        self._pass_on(self.replica.block)
        self._flag = torch.zeros(1)
        if len(firsts) == 1:
            self.staleness = self.inner.staleness
        self.notes |= {"nodes": len(firsts), "ranks_of_a_node": self._node.world.size, "inside": self._node.name}

    def mix_gradients(self, step: int) -> bool:
        ready = self.inner.mix_gradients(step)
        if not self.shares_gradients or not ready:
            return ready
        ready = self._told(self.outer.mix_gradients(step) if self._leads else False)
        if ready:
            self._pass_on(self.replica.gradients)
        return ready

    def mix_weights(self, step: int) -> bool:
        self.inner.mix_weights(step)
        if self.shares_gradients:
            return False
        changed = self._told(self.outer.mix_weights(step) if self._leads else False)
        if changed:
            self._pass_on(self.replica.block)
        return changed

    def drain(self) -> None:
        self.inner.drain()
        if self._leads:
            self.outer.drain()
        self._pass_on(self.replica.block)

    def state(self) -> dict[str, Tensor]:
        outer = self.outer.state() if self._leads else {}
        return {**{f"inner.{name}": each for name, each in self.inner.state().items()}} | {
            f"outer.{name}": each for name, each in outer.items()
        }

    def _pass_on(self, tensor: Tensor) -> None:
        self._node.broadcast_(tensor, source=0).wait()

    def _told(self, answer: bool) -> bool:
        """What the first rank of the node says, on all of them."""
        self._flag.fill_(float(answer))
        self._pass_on(self._flag)
        return bool(self._flag)
