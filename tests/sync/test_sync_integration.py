"""Every strategy keeps the contract on real ranks."""

import os
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from deepex.errors import ConfigError, TrainingError
from deepex.fabric import Fabric, FabricName
from deepex.replica import Replica
from deepex.sync import STRATEGIES, SyncContext, parse
from deepex.sync.auto import Auto
from deepex.sync.compressors.parse import COMPRESSIONS
from deepex.sync.local import Local
from deepex.testing.ranks import on_ranks
from deepex.testing.sync import check_sync

Case = tuple[str, int, FabricName, int | None]  # strategy, ranks, fabric, ranks of a host
TABLE: list[Case] = [
    *((strategy.example, 2, "shared", None) for strategy in STRATEGIES.values()),
    *((strategy.example, 4, "torch", 2) for strategy in STRATEGIES.values()),
    *((f"allreduce+{compression.example}", 2, "shared", None) for compression in COMPRESSIONS.values()),
]
OPTIONS: list[Case] = [
    ("allreduce,bucket=0.0001", 3, "torch", None),
    ("allreduce", 3, "shared", None),
    ("local:3", 3, "shared", None),
    ("local:epoch", 3, "torch", None),
    ("local:3,outer=momentum,momentum=average", 2, "shared", None),
    ("local:2,outer=nesterov,momentum=reset", 3, "torch", None),
    ("local:3,after=1", 2, "torch", None),
    ("background:2", 3, "shared", None),
    ("lagged", 3, "torch", None),
    ("hierarchical", 4, "torch", 2),
    ("hierarchical(allreduce,local:epoch)", 4, "torch", 2),
    ("hierarchical(lagged,background:2)+bf16", 4, "torch", 2),
    ("hybrid:1", 2, "shared", None),
    ("hybrid:2,every=2", 4, "shared", None),
    ("hybrid:2,place=own", 3, "torch", None),
    ("async", 3, "shared", None),
    ("async,every=2", 4, "torch", 2),
    ("auto", 3, "torch", None),
    ("allreduce+bf16", 2, "torch", None),
    ("allreduce+fp16", 3, "shared", None),
    ("lagged+powersgd:2", 2, "torch", None),
    ("local:3+topk:0.1", 3, "torch", None),
    ("local:3,outer=nesterov+powersgd:1", 2, "shared", None),
    ("background:2+bf16", 2, "shared", None),
]


@pytest.mark.parametrize(("text", "num_ranks", "fabric", "ranks_per_host"), TABLE + OPTIONS)
def test_contract(text: str, num_ranks: int, fabric: FabricName, ranks_per_host: int | None) -> None:
    check_sync(lambda: parse(text), num_ranks=num_ranks, fabric=fabric, ranks_per_host=ranks_per_host)


def test_a_strategy_that_never_mixes_breaks_the_contract() -> None:
    class Never(Local):
        def drain(self) -> None:
            return None

    with pytest.raises(AssertionError, match="replicas differ after drain"):
        check_sync(lambda: Never(None))


WRONG_TRAITS: dict[str, dict[str, Any]] = {
    "staleness is declared as 0, and 2 was observed": {"staleness": 0},
    "syncs should be 1 steps apart": {"interval": 1},
    "syncs should be 6 steps apart": {"interval": 6},
    "syncs should be 9 steps apart": {"interval": None, "once_an_epoch": True},
    "traits name two intervals": {"once_an_epoch": True},
    "ranks share gradients and still have other weights": {"shares_gradients": True},
    "messages are waited for in the step in which they leave": {"hides_messages": True},
}


@pytest.mark.parametrize("said", WRONG_TRAITS)
def test_a_strategy_that_is_not_what_it_promises_breaks_the_contract(said: str) -> None:
    def make() -> Local:
        local = Local(3)
        local.traits = replace(local.traits, **WRONG_TRAITS[said])
        return local

    with pytest.raises(AssertionError, match=said):
        check_sync(make, fabric="shared")


def test_ranks_of_small_batches_equal_one_rank_with_the_whole_batch() -> None:
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))

    def gradients(share: Tensor) -> Replica:
        torch.manual_seed(1)
        replica = Replica(nn.Linear(4, 1))
        replica.model(share).square().mean().backward()
        return replica

    def rank(fabric: Fabric) -> Tensor:
        replica = gradients(x[4 * fabric.world.rank :][:4])
        sync = parse("allreduce")
        sync.prepare(SyncContext(replica=replica, fabric=fabric, moments={}, steps_per_epoch=1, batch=4))
        sync.mix_gradients(0)
        return replica.gradients

    whole = gradients(x).gradients
    for mixed in on_ranks(2, rank):
        torch.testing.assert_close(mixed, whole)


@pytest.mark.parametrize(("interval", "overlaps"), [(4, True), (3, True), (3, False)])
def test_auto_looks_again_after_each_epoch(interval: int, overlaps: bool) -> None:
    """Also where syncs are in the background, and where an epoch ends with one."""

    def rank(fabric: Fabric) -> list[dict[str, Any]]:
        torch.manual_seed(0)
        replica = Replica(nn.Linear(50, 50))
        auto = Auto()
        auto.prepare(SyncContext(replica=replica, fabric=fabric, moments={}, steps_per_epoch=9, batch=4))
        for step in range(27):
            if step == 9:  # whatever was chosen in the first epoch
                auto.state()["chosen"].copy_(torch.tensor([interval, overlaps, 1.0]))
            auto.mix_gradients(step)
            replica.weights.add_(torch.randn(len(replica.weights)), alpha=0.01 * (1 + fabric.world.rank))
            auto.mix_weights(step)
            if step % 9 == 8:
                auto.drain()
        return list(auto.notes["choices"])

    first, second = on_ranks(2, rank)
    assert [choice["when"] for choice in first] == ["step 4", *["the end of an epoch"] * 3]
    assert first == second
    assert all(choice["sync_seconds"] > 0 and choice["noise"] > 0 for choice in first)


def test_auto_takes_epochs_of_one_step() -> None:
    """Which has no step that an evaluation does not precede, so that none can be timed after the first epoch."""

    def rank(fabric: Fabric) -> int:
        auto = Auto()
        replica = Replica(nn.Linear(4, 1))
        auto.prepare(SyncContext(replica=replica, fabric=fabric, moments={}, steps_per_epoch=1, batch=4))
        for step in range(8):
            auto.mix_gradients(step)
            auto.mix_weights(step)
            auto.drain()
        return len(auto.notes["choices"])

    assert on_ranks(2, rank) == [1, 1]


def be_somebody_else(fabric: Fabric) -> str:
    if fabric.world.rank == 1:
        os.seteuid(65534)
    try:
        context = SyncContext(replica=Replica(nn.Linear(4, 1)), fabric=fabric, moments={}, steps_per_epoch=1, batch=4)
        with pytest.raises(ConfigError) as caught:
            parse("async").prepare(context)
    finally:
        os.seteuid(os.getuid())
    return str(caught.value)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_async_is_refused_where_ranks_of_a_host_cannot_share_memory() -> None:
    assert all("Use --sync hybrid:G, which needs no shared memory" in text for text in on_ranks(2, be_somebody_else))


def test_a_peer_that_leaves_is_an_error_not_silence() -> None:
    def rank(fabric: Fabric) -> None:
        if fabric.world.rank == 0:
            fabric.mean_(torch.ones(4)).wait()

    with pytest.raises(TrainingError, match=r"rank 0 of 2 .* all-reduce failed"):
        on_ranks(2, rank, timeout_seconds=8.0)  # where names are not answered, the rendezvous alone may take 5
