"""The contract of a synchronisation strategy. `check_sync` holds any strategy to it, on real ranks."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from deepex.fabric import Fabric, SoloFabric
from deepex.optim import Optimiser, OptimiserConfig
from deepex.replica import Replica
from deepex.sync import Sync
from deepex.testing.ranks import on_ranks
from deepex.world import World

STEPS = 7  # no multiple of a usual interval, so that a run ends inside one


def check_sync(make: Callable[[], Sync], *, num_ranks: int = 2) -> None:
    """Raise AssertionError unless the strategy keeps its promises.

    1. `prepare` makes all replicas equal to rank 0's.
    2. After `drain` all replicas hold the same weights and statistics, bit for bit, and have learned something.
    3. In a world of one, training is what it would be without the strategy.
    4. A replica saved between two syncs and restored under a new strategy goes on bit for bit.

    Example: `check_sync(lambda: parse("local:3"))`
    """
    alone, plain = _train(make(), _solo()).block, _train(None, _solo()).block
    assert torch.equal(alone, plain), "a world of one is not plain training"

    def rank(fabric: Fabric) -> tuple[Tensor, Tensor, Tensor]:
        prepared = _replica(seed=fabric.world.rank)
        make().prepare(prepared, fabric)
        whole = _train(make(), fabric).block
        resumed = _train(make(), fabric, stop_after=STEPS - 3, again=make()).block
        return prepared.block, whole, resumed

    ranks = on_ranks(num_ranks, rank)
    start = _replica(seed=0).block
    for prepared, whole, resumed in ranks:
        assert torch.equal(prepared, start), "prepare does not make replicas equal to rank 0's"
        assert torch.equal(whole, ranks[0][1]), "replicas differ after drain"
        assert not torch.equal(whole, start), "nothing was learned"
        assert torch.equal(resumed, whole), "a resumed run differs from one that was not interrupted"


def _solo() -> Fabric:
    return SoloFabric(World())


def _replica(seed: int) -> Replica:
    torch.manual_seed(seed)
    return Replica(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)))


def _train(sync: Sync | None, fabric: Fabric, *, stop_after: int = STEPS, again: Sync | None = None) -> Replica:
    """STEPS steps of Adam on batches that differ from rank to rank; the second strategy takes over after a stop."""
    config = OptimiserConfig(name="adam", learning_rate=0.01)
    replica = _replica(seed=0)
    optimiser = Optimiser(config, replica)
    if sync is not None:
        sync.prepare(replica, fabric)
    for step in range(STEPS):
        if again is not None and step == stop_after:
            kept, state, sync = replica.block.clone(), optimiser.state_dict(), again
            replica = _replica(seed=1)
            optimiser = Optimiser(config, replica)
            sync.prepare(replica, fabric)
            replica.block.copy_(kept)
            optimiser.load_state_dict(state)
        noise = torch.Generator().manual_seed(1000 * fabric.world.rank + step)
        inputs = torch.randn(16, 4, generator=noise)
        replica.gradients.zero_()
        loss = (replica.model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        loss.backward()
        if sync is not None:
            sync.mix_gradients(step)
        optimiser.step()
        if sync is not None:
            sync.mix_weights(step)
    if sync is not None:
        sync.drain()
    return replica
