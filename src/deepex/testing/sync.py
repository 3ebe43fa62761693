"""The contract of a synchronisation strategy. `check_sync` holds any strategy to it, on real ranks."""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from deepex.fabric import Fabric, FabricName, SoloFabric
from deepex.optim import Optimiser, OptimiserConfig
from deepex.replica import Replica
from deepex.sync import Setting, Sync
from deepex.testing.ranks import on_ranks
from deepex.world import World

STEPS = 9  # of an epoch; more than two of a usual interval
STOP = STEPS + 5  # where a run is saved and goes on: in mid-epoch, in mid-interval
PROBED_STEPS = 4 * STEPS

Make = Callable[[], Sync]


def check_sync(
    make: Make, *, num_ranks: int = 2, fabric: FabricName = "torch", ranks_per_host: int | None = None
) -> None:
    """Raise AssertionError unless the strategy keeps its promises.

    1. `prepare` makes all replicas equal to rank 0's.
    2. After `drain` all replicas hold the same weights and statistics, bit for bit, and have learned something.
    3. In a world of one, training is what it would be without the strategy.
    4. Saved between two syncs and restored under a new strategy, a run goes on bit for bit; and so does the same run
       made twice, where the strategy says that it repeats.
    5. A gradient has reached every replica after as many steps as `staleness` says, and not always sooner.
    6. A rank with fewer batches than the others hangs nobody, and ends with the same weights.
    7. Of noise it has seen finite numbers or nothing, all ranks some or none, and a rank that is alone nothing.

    Example: `check_sync(lambda: parse("local:3"))`
    """
    sync = make()
    alone, plain = _train(sync, _solo()).block, _train(None, _solo()).block
    assert torch.equal(alone, plain), "a world of one is not plain training"
    assert sync.noise.take() is None, "a rank that is alone can't tell noise"

    def rank(fabric: Fabric) -> Outcome:
        prepared = _replica(seed=fabric.world.rank)
        make().prepare(_setting(prepared, fabric, Optimiser(CONFIG, prepared)))
        watched = make()
        return Outcome(
            prepared=prepared.block.clone(),
            whole=_train(watched, fabric).block.clone(),
            noise=watched.noise.take(),
            again=_train(make(), fabric).block.clone(),
            resumed=_train(make(), fabric, again=make()).block.clone(),
            uneven=_train(make(), fabric, batches=STEPS - 2 * (fabric.world.rank % 2)).block.clone(),
            lag=_observe_lag(make(), fabric),
        )

    strategy = make()
    ranks = on_ranks(num_ranks, rank, fabric=fabric, ranks_per_host=ranks_per_host)
    start = _replica(seed=0).block
    for found in ranks:
        assert torch.equal(found.prepared, start), "prepare does not make replicas equal to rank 0's"
        assert torch.equal(found.whole, ranks[0].whole), "replicas differ after drain"
        assert torch.equal(found.uneven, ranks[0].uneven), "replicas differ after an epoch with fewer batches on one"
        assert not torch.equal(found.whole, start), "nothing was learned"
        assert torch.isfinite(found.whole).all(), "weights are not finite"
        seen = list((found.noise or {}).values())
        assert all(map(math.isfinite, seen)), "what was seen of noise is not finite"
        if strategy.repeats:
            assert torch.equal(found.again, found.whole), "the same run gives other bits the second time"
            assert torch.equal(found.resumed, found.whole), "a resumed run differs from one that was not interrupted"
        else:
            near = torch.dist(found.resumed, found.whole) < torch.dist(found.whole, start)
            assert near, "a resumed run is far from one that was not interrupted"
    trainers = ranks[: strategy.trainers(num_ranks)]
    assert len({found.noise is None for found in trainers}) == 1, "some ranks have seen noise, and others none"
    observed, declared = max(found.lag[0] for found in ranks), ranks[0].lag[1]
    assert declared in (None, observed), f"staleness is declared as {declared}, and {observed} was observed"


class Outcome(NamedTuple):
    """What a rank found: blocks, noise, the most steps that a gradient took to reach it, and the declared staleness."""

    prepared: Tensor
    whole: Tensor
    noise: dict[str, float] | None
    again: Tensor
    resumed: Tensor
    uneven: Tensor
    lag: tuple[int, int | None]


CONFIG = OptimiserConfig(name="adam", learning_rate=0.01)


def _solo() -> Fabric:
    return SoloFabric(World())


def _replica(seed: int) -> Replica:
    torch.manual_seed(seed)
    return Replica(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)))


def _setting(replica: Replica, fabric: Fabric, optimiser: Optimiser) -> Setting:
    return Setting(replica=replica, fabric=fabric, moments=optimiser.state_dict(), steps_per_epoch=STEPS, batch=16)


def _train(sync: Sync | None, fabric: Fabric, *, again: Sync | None = None, batches: int = STEPS) -> Replica:
    """Two epochs of Adam on batches that differ from rank to rank; the second strategy takes over after a stop.

    A rank with fewer `batches` than the epoch has steps does its last ones without a gradient of its own.
    """
    replica = _replica(seed=0)
    optimiser = Optimiser(CONFIG, replica)
    if sync is not None:
        sync.prepare(_setting(replica, fabric, optimiser))
    for step in range(2 * STEPS):
        if again is not None and step == STOP:
            assert sync is not None
            kept, moments = replica.block.clone(), _copied(optimiser.state_dict())
            state, sync = _copied(sync.state()), again
            fabric.gather(None)  # as after a checkpoint: nobody goes on before everybody has written
            replica = _replica(seed=1)
            optimiser = Optimiser(CONFIG, replica)
            sync.prepare(_setting(replica, fabric, optimiser))
            replica.block.copy_(kept)
            optimiser.load_state_dict(moments)
            for name, tensor in sync.state().items():
                tensor.copy_(state[name])
            fabric.gather(None)
        has_batch = step % STEPS < batches
        replica.gradients.zero_()
        if has_batch:
            _loss(replica, 1000 * fabric.world.rank + step).backward()  # type: ignore[no-untyped-call]  # torch leaves backward untyped
        update = sync.mix_gradients(step) if sync is not None else True
        if update and (has_batch or (sync is not None and sync.shares_gradients)):
            optimiser.step()
        if sync is not None:
            sync.mix_weights(step)
            if step % STEPS == STEPS - 1:
                sync.drain()
                fabric.gather(None)  # as evaluation does
    return replica


def _copied(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _loss(replica: Replica, seed: int) -> Tensor:
    inputs = torch.randn(16, 4, generator=torch.Generator().manual_seed(seed))
    loss: Tensor = (replica.model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    return loss


def _observe_lag(sync: Sync, fabric: Fabric) -> tuple[int, int | None]:
    """The most steps from a gradient on any rank to its first trace in this rank's weights, and what was declared.

    Rank r's gradient in step t touches one weight that no other gradient touches, so each leaves a trace of its own.
    """
    rank, size = fabric.world.rank, fabric.world.size
    replica = Replica(Traces(size * PROBED_STEPS))
    optimiser = Optimiser(OptimiserConfig(name="sgd", learning_rate=1.0, momentum=0.0), replica)
    sync.prepare(_setting(replica, fabric, optimiser))
    first_seen = torch.full((size * PROBED_STEPS,), -1)
    for step in range(PROBED_STEPS):
        replica.gradients.zero_()
        replica.gradients[rank * PROBED_STEPS + step] = 1.0
        if sync.mix_gradients(step):
            optimiser.step()
        sync.mix_weights(step)
        if step % STEPS == STEPS - 1:
            sync.drain()
            fabric.gather(None)
        first_seen[(first_seen < 0) & (replica.weights != 0)] = step
    return max(_lags(first_seen, size)), sync.staleness


def _lags(first_seen: Tensor, size: int) -> Iterator[int]:
    """How many steps each gradient took; what was under way at the end is not counted."""
    for source in range(size):
        for step in range(PROBED_STEPS):
            seen = int(first_seen[source * PROBED_STEPS + step])
            if seen >= 0:
                yield seen - step


class Traces(nn.Module):
    """Weights that begin at zero, with no meaning."""

    def __init__(self, numel: int) -> None:
        super().__init__()
        self.traces = nn.Parameter(torch.zeros(numel))
