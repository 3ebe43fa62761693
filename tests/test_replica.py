import pytest
import torch
from torch import nn

from deepex.errors import ConfigError
from deepex.replica import Replica


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2))


def test_a_replica_computes_what_the_model_computed() -> None:
    plain, replica = network(), Replica(network())
    x = torch.randn(5, 1, 4, 4)
    for model in (plain, replica.model):
        model(x).square().sum().backward()
    assert torch.equal(plain(x), replica.model(x))
    expected = torch.cat([p.grad.flatten() for p in list(plain.parameters())[::-1] if p.grad is not None])
    assert torch.equal(replica.gradients, expected)


def test_weights_and_statistics_are_one_block_without_gaps() -> None:
    replica = Replica(network())
    first = replica.block.data_ptr()
    assert replica.weights.data_ptr() == first
    assert replica.statistics.data_ptr() == first + 4 * replica.weights.numel()
    assert replica.block.numel() == sum(p.numel() for p in replica.model.parameters()) + 2 * 3
    replica.block.fill_(2.0)
    assert all((p == 2.0).all() for p in replica.model.parameters())
    normalisation = replica.model[1]  # type: ignore[index]  # the network is a Sequential
    assert (normalisation.running_mean == 2.0).all()


def test_backward_fills_the_flat_gradient_in_place() -> None:
    replica = Replica(network())
    address = replica.gradients.data_ptr()
    replica.model(torch.randn(5, 1, 4, 4)).sum().backward()
    assert replica.gradients.abs().sum() > 0
    assert min(p.grad.data_ptr() for p in replica.model.parameters() if p.grad is not None) == address


def test_tied_weights_stand_once_and_frozen_ones_stay_out() -> None:
    tied = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    tied[1].weight = tied[0].weight
    assert Replica(tied).weights.numel() == 16
    frozen = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    frozen[0].requires_grad_(False)
    assert Replica(frozen).weights.numel() == 16


def test_what_cannot_be_a_replica_is_named() -> None:
    with pytest.raises(ConfigError, match=r"parameter '0\.(weight|bias)' is torch.float64"):
        Replica(nn.Sequential(nn.Linear(2, 2).double()))
    with pytest.raises(ConfigError, match="no trainable weights"):
        Replica(nn.ReLU())
