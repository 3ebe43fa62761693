"""What a torch optimiser remembers, where ranks average their weights."""

import torch
from torch import Tensor, nn

from deepex.fabric import Fabric
from deepex.optim import Optimiser, OptimiserConfig
from deepex.replica import Replica
from deepex.sync import SyncContext, parse
from deepex.testing.ranks import on_ranks

TREATMENTS = ("keep", "average", "reset")


def train(fabric: Fabric, treatment: str) -> tuple[Tensor, dict[str, Tensor]]:
    """Steps of two averages, on gradients that differ from rank to rank."""
    torch.manual_seed(0)
    replica = Replica(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)))
    optimiser = Optimiser(OptimiserConfig(name="torch.optim:NAdam"), replica)
    sync = parse(f"local:2,momentum={treatment}")
    context = SyncContext(replica=replica, fabric=fabric, moments=optimiser.moments, steps_per_epoch=4, batch=16)
    sync.prepare(context)
    noise = torch.Generator().manual_seed(fabric.world.rank)
    for step in range(4):
        replica.gradients.copy_(torch.randn(len(replica.gradients), generator=noise))
        optimiser.step()
        sync.mix_weights(step)
    return replica.weights.clone(), {name: moment.clone() for name, moment in optimiser.moments.items()}


def test_local_sgd_treats_what_it_remembers_as_it_is_told() -> None:
    first, second = on_ranks(2, lambda fabric: {each: train(fabric, each) for each in TREATMENTS})
    for treatment in TREATMENTS:
        (weights, moments), (other_weights, other_moments) = first[treatment], second[treatment]
        assert torch.equal(weights, other_weights)
        assert sorted(moments) == ["exp_avg", "exp_avg_sq"]
        for name, moment in moments.items():
            assert bool(moment.any()) == (treatment != "reset")
            assert torch.equal(moment, other_moments[name]) == (treatment != "keep")
