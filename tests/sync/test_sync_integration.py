"""Every strategy keeps the contract on real ranks."""

import pytest
import torch
from torch import Tensor, nn

from deepex.errors import TrainingError
from deepex.fabric import Fabric
from deepex.replica import Replica
from deepex.sync import Setting, parse
from deepex.sync.local import Local
from deepex.testing.ranks import on_ranks
from deepex.testing.sync import check_sync

CONTRACT = [
    ("allreduce", 2),
    ("allreduce,bucket=1", 3),
    ("local:3", 2),
    ("local:3", 3),
    ("local:epoch", 3),
    ("local:3,outer=momentum,momentum=average", 2),
    ("local:2,outer=nesterov,momentum=reset", 3),
    ("local:3,after=1", 2),
    ("background:3", 2),
    ("background:2", 3),
    ("lagged", 2),
    ("lagged", 3),
]


@pytest.mark.parametrize(("text", "num_ranks"), CONTRACT)
def test_contract(text: str, num_ranks: int) -> None:
    check_sync(lambda: parse(text), num_ranks=num_ranks)


def test_a_strategy_that_never_mixes_breaks_the_contract() -> None:
    class Never(Local):
        def drain(self) -> None:
            return None

    with pytest.raises(AssertionError, match="replicas differ after drain"):
        check_sync(lambda: Never(None))


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
        sync.prepare(Setting(replica=replica, fabric=fabric, moments={}, steps_per_epoch=1, batch=4))
        sync.mix_gradients(0)
        return replica.gradients

    whole = gradients(x).gradients
    for mixed in on_ranks(2, rank):
        torch.testing.assert_close(mixed, whole)


def test_a_peer_that_leaves_is_an_error_not_silence() -> None:
    def rank(fabric: Fabric) -> None:
        if fabric.world.rank == 0:
            fabric.mean_(torch.ones(4)).wait()

    with pytest.raises(TrainingError, match=r"rank 0 of 2 .* all-reduce failed"):
        on_ranks(2, rank, timeout_seconds=5.0)
