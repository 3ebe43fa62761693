"""The contract of a synchronisation strategy. `check_sync` holds any strategy to it, on real ranks."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from deepex.fabric import Fabric, FabricName, SoloFabric
from deepex.optim import Optimiser, OptimiserConfig
from deepex.replica import Replica
from deepex.sync import Sync, SyncContext, SyncTraits
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
    5. A rank with fewer batches than the others hangs nobody, and ends with the same weights.
    6. Of noise it has seen finite numbers or nothing, all ranks some or none, and a rank that is alone nothing.
    7. Its traits are what it does, and stay as they are (see `check_traits`).

    Example: `check_sync(lambda: parse("local:3"))`
    """
    sync = make()
    alone, plain = _train(sync, _solo()).block, _train(None, _solo()).block
    assert torch.equal(alone, plain), "a world of one is not plain training"
    assert sync.noise.take() is None, "a rank that is alone can't tell noise"

    def rank(fabric: Fabric) -> Outcome:
        prepared = _replica(seed=fabric.world.rank)
        make().prepare(_context(prepared, fabric, Optimiser(CONFIG, prepared)))
        watched = make()
        return Outcome(
            prepared=prepared.block.clone(),
            whole=_train(watched, fabric).block.clone(),
            noise=watched.noise.take(),
            traits=watched.traits,
            again=_train(make(), fabric).block.clone(),
            resumed=_train(make(), fabric, again=make()).block.clone(),
            uneven=_train(make(), fabric, batches=STEPS - 2 * (fabric.world.rank % 2)).block.clone(),
            traces=_observe_traces(make(), fabric),
        )

    strategy = make()
    ranks = on_ranks(num_ranks, rank, fabric=fabric, ranks_per_host=ranks_per_host)
    _check_weights(strategy.traits, ranks)
    training = ranks[: strategy.num_training_ranks(num_ranks)]
    assert len({found.noise is None for found in training}) == 1, "some ranks have seen noise, and others none"
    assert all(found.traits == strategy.traits for found in ranks), "traits change while it runs"
    check_traits(strategy.traits, [found.traces for found in ranks])


class Traces(NamedTuple):
    """When the gradients of all ranks have reached one.

    Attributes:
        first_seen: by rank and step of a gradient, the step in which the weights first show it; -1 if never.
        differed: whether ranks that make the same steps ever had other weights after one.
    """

    rank: int
    host: str
    first_seen: Tensor
    differed: bool


class Outcome(NamedTuple):
    """What a rank found: blocks of weights, noise, the strategy's traits after a run, and traces of gradients."""

    prepared: Tensor
    whole: Tensor
    noise: dict[str, float] | None
    traits: SyncTraits
    again: Tensor
    resumed: Tensor
    uneven: Tensor
    traces: Traces


def _check_weights(traits: SyncTraits, ranks: Sequence[Outcome]) -> None:
    start = _replica(seed=0).block
    for found in ranks:
        assert torch.equal(found.prepared, start), "prepare does not make replicas equal to rank 0's"
        assert torch.equal(found.whole, ranks[0].whole), "replicas differ after drain"
        assert torch.equal(found.uneven, ranks[0].uneven), "replicas differ after an epoch with fewer batches on one"
        assert not torch.equal(found.whole, start), "nothing was learned"
        assert torch.isfinite(found.whole).all(), "weights are not finite"
        seen = list((found.noise or {}).values())
        assert all(map(math.isfinite, seen)), "what was seen of noise is not finite"
        if traits.repeats:
            assert torch.equal(found.again, found.whole), "the same run gives other bits the second time"
            assert torch.equal(found.resumed, found.whole), "a resumed run differs from one that was not interrupted"
        else:
            near = torch.dist(found.resumed, found.whole) < torch.dist(found.whole, start)
            assert near, "a resumed run is far from one that was not interrupted"


def check_traits(traits: SyncTraits, ranks: Sequence[Traces]) -> None:
    """Raise AssertionError unless the traces of gradients are as the traits promise.

    1. A gradient has reached every replica after as many steps as `staleness` says. Not always sooner, unless a
       strategy of two levels has one node only.
    2. Where ranks share gradients, those in lockstep hold the same weights after each step.
    3. Where bits repeat, replicas hear of each other every `interval` steps, and else only when an epoch ends: those
       of other nodes, if a strategy has two levels. What hides its messages brings none in the step they leave in.
    """
    one_level = traits.inner_interval is None
    is_whole = one_level or len({found.host for found in ranks}) > 1
    if traits.staleness is not None:
        observed = max(int(lag) for found in ranks for lag in _lags(found.first_seen))
        fits = observed == traits.staleness if is_whole else observed <= traits.staleness
        assert fits, f"staleness is declared as {traits.staleness}, and {observed} was observed"
    if traits.shares_gradients:
        assert not any(found.differed for found in ranks), "ranks share gradients and still have other weights"
    assert not (traits.interval and (traits.once_an_epoch or traits.chooses_interval)), "traits name two intervals"
    if not traits.repeats or not is_whole:
        return
    for found in ranks:
        others = [each.rank for each in ranks if (each.rank != found.rank if one_level else each.host != found.host)]
        _check_interval(traits, found.first_seen[others])


def _check_interval(traits: SyncTraits, first_seen: Tensor) -> None:
    """Hold a rank's traces of others to the interval, in the later half of the epochs: some begin in another way."""
    interval = STEPS if traits.once_an_epoch else traits.interval
    if interval is None:
        return
    steps = sorted(set(first_seen[first_seen >= PROBED_STEPS // 2].tolist()))
    between = [step for step in steps if step % STEPS < STEPS - 1]
    fits = not between if traits.once_an_epoch else all((step + 1) % interval == 0 for step in between)
    # From one epoch to the next it may take longer: what hides its messages has none under way after `drain`.
    pairs = [(step, later) for step, later in pairwise(steps) if step // STEPS == later // STEPS]
    fits = fits and all(later - step <= interval for step, later in pairs)
    assert fits, f"syncs should be {interval} steps apart, or at the end of an epoch of {STEPS}; they are in {steps}"
    if traits.hides_messages:
        made = torch.arange(PROBED_STEPS).expand_as(first_seen)
        at_once = set(first_seen[first_seen == made].tolist())
        assert not at_once & set(between), "messages are waited for in the step in which they leave"


CONFIG = OptimiserConfig(name="adam", learning_rate=0.01)


def _solo() -> Fabric:
    return SoloFabric(World())


def _replica(seed: int) -> Replica:
    torch.manual_seed(seed)
    return Replica(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)))


def _context(replica: Replica, fabric: Fabric, optimiser: Optimiser) -> SyncContext:
    return SyncContext(replica=replica, fabric=fabric, moments=optimiser.state_dict(), steps_per_epoch=STEPS, batch=16)


def _train(sync: Sync | None, fabric: Fabric, *, again: Sync | None = None, batches: int = STEPS) -> Replica:
    """Two epochs of Adam on batches that differ from rank to rank; the second strategy takes over after a stop.

    A rank with fewer `batches` than the epoch has steps does its last ones without a gradient of its own.
    """
    replica = _replica(seed=0)
    optimiser = Optimiser(CONFIG, replica)
    if sync is not None:
        sync.prepare(_context(replica, fabric, optimiser))
    for step in range(2 * STEPS):
        if again is not None and step == STOP:
            assert sync is not None
            kept, moments = replica.block.clone(), _copied(optimiser.state_dict())
            state, sync = _copied(sync.state()), again
            fabric.gather(None)  # as after a checkpoint: nobody goes on before everybody has written
            replica = _replica(seed=1)
            optimiser = Optimiser(CONFIG, replica)
            sync.prepare(_context(replica, fabric, optimiser))
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
        if update and (has_batch or (sync is not None and sync.traits.shares_gradients)):
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


def _observe_traces(sync: Sync, fabric: Fabric) -> Traces:
    """Train on gradients that each leave a trace of their own, and note when this rank's weights first show each.

    Rank r's gradient in step t touches one weight that no other gradient touches.
    """
    rank, size, differed = fabric.world.rank, fabric.world.size, False
    replica = Replica(Untouched(size * PROBED_STEPS))
    optimiser = Optimiser(OptimiserConfig(name="sgd", learning_rate=1.0, momentum=0.0), replica)
    sync.prepare(_context(replica, fabric, optimiser))
    first_seen = torch.full((size * PROBED_STEPS,), -1)
    for step in range(PROBED_STEPS):
        replica.gradients.zero_()
        replica.gradients[rank * PROBED_STEPS + step] = 1.0
        if sync.mix_gradients(step):
            optimiser.step()
        sync.mix_weights(step)
        if sync.traits.shares_gradients:
            differed |= len(set(sync.lockstep.gather(replica.weights_sha256()))) > 1
        if step % STEPS == STEPS - 1:
            sync.drain()
            fabric.gather(None)
        first_seen[(first_seen < 0) & (replica.weights != 0)] = step
    return Traces(rank, fabric.world.host, first_seen.view(size, PROBED_STEPS), differed)


def _lags(first_seen: Tensor) -> Tensor:
    """How many steps each gradient took; what was under way at the end is not counted."""
    return (first_seen - torch.arange(PROBED_STEPS))[first_seen >= 0]


class Untouched(nn.Module):
    """Weights that begin at zero, with no meaning."""

    def __init__(self, numel: int) -> None:
        super().__init__()
        self.traces = nn.Parameter(torch.zeros(numel))
