"""`hierarchical(INNER,OUTER)`: one strategy among the ranks of a node, another between nodes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor

from deepex.errors import ConfigError
from deepex.fabric import Fabric, inside_node
from deepex.sync.compressors.compressor import Compressor
from deepex.sync.local import Local
from deepex.sync.spec import SyncSpec
from deepex.sync.sync import Sync, SyncContext, SyncTraits


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
        spec: as it was written, for the record.

    Reference: Kurth et al., Exascale deep learning for climate analytics, SC 2018.
    """

    def __init__(self, inner: Sync, outer: Sync, spec: SyncSpec | None = None) -> None:
        self.inner, self.outer, self.spec = inner, outer, spec
        within, between = inner.traits, outer.traits
        known = within.staleness is not None and between.staleness is not None
        self.traits = SyncTraits(
            staleness=(within.staleness or 0) + (between.staleness or 0) if known else None,
            shares_gradients=between.shares_gradients,
            repeats=within.repeats and between.repeats,
            interval=between.interval,
            once_an_epoch=between.once_an_epoch,
            inner_interval=within.interval,
            hides_messages=between.hides_messages,
        )
        self.lockstep: Fabric
        self.notes: dict[str, Any] = {}
        self.noise = inner.noise  # within a node

    @classmethod
    def parse(cls, spec: SyncSpec, compressor: Compressor, parse: Callable[[str], Sync]) -> Self:
        """The composition, if the two can be composed; a compression behind the bracket is that between nodes."""
        spec.takes(brackets=True)
        inner_text, outer_text = split_levels(spec)
        inner, outer = parse(inner_text), parse(f"{outer_text}+{spec.compression}" if compressor.name else outer_text)
        if not inner.traits.shares_gradients or inner.traits.staleness is None or inner.traits.interval != 1:
            raise spec.wrong(
                "the inner strategy must keep the replicas of a node equal in every step",
                "Allowed inside: allreduce, lagged. Write --sync 'hierarchical(allreduce,local:8)'.",
            )
        if not outer.traits.repeats or isinstance(outer, Hierarchical):
            raise spec.wrong(
                "between nodes there can be allreduce, lagged, local:H or background:H",
                "Write --sync 'hierarchical(allreduce,local:8)'.",
            )
        if isinstance(outer, Local) and outer.after:
            raise spec.wrong("between nodes local SGD begins with the first epoch", "Leave after= out.")
        return cls(inner, outer, spec)

    def num_training_ranks(self, num_ranks: int) -> int:
        return num_ranks

    def prepare(self, context: SyncContext) -> None:
        self.replica, self.lockstep = context.replica, context.fabric
        hosts = context.fabric.gather(context.fabric.world.host)
        firsts = sorted({hosts.index(host) for host in hosts})
        counts = {host: hosts.count(host) for host in hosts}
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{host}: {count}" for host, count in counts.items())
            raise ConfigError(f"hierarchical needs as many ranks on each node, and was given {told}. Use allreduce.")
        self._node = inside_node(context.fabric)
        self._leads = self._node.world.is_first
        self.inner.prepare(replace(context, fabric=self._node))
        if self._leads:
            between = context.fabric.group(firsts)
            self.outer.prepare(replace(context, fabric=between, sends_early=False, measures_noise=False))
        self._pass_on(self.replica.block)
        self._flag = torch.zeros(1)
        if self.spec is not None and "as_run" in self.outer.notes:
            levels = (split_levels(self.spec)[0], str(self.outer.notes["as_run"]))
            self.notes["as_run"] = replace(self.spec, inside=levels, compression="").text
        self.notes |= {"nodes": len(firsts), "ranks_of_a_node": self._node.world.size, "inside": self._node.name}

    def mix_gradients(self, step: int) -> bool:
        ready = self.inner.mix_gradients(step)
        if not self.traits.shares_gradients or not ready:
            return ready
        ready = self._told(self.outer.mix_gradients(step) if self._leads else False)
        if ready:
            self._pass_on(self.replica.gradients)
        return ready

    def mix_weights(self, step: int) -> bool:
        self.inner.mix_weights(step)
        if self.traits.shares_gradients:
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


def split_levels(spec: SyncSpec) -> tuple[str, str]:
    """INNER and OUTER as they are written; all-reduce for both where there are no brackets.

    >>> split_levels(SyncSpec.parse("hierarchical(lagged,local:8,outer=nesterov)"))
    ('lagged', 'local:8,outer=nesterov')
    """
    if not spec.inside:
        return "allreduce", "allreduce"
    if len(spec.inside) != 2:
        raise spec.wrong(
            f"brackets hold two strategies, not {len(spec.inside)}", "Write --sync 'hierarchical(allreduce,local:8)'."
        )
    return spec.inside[0], spec.inside[1]
