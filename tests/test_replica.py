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


def test_channels_last_weights_stand_in_the_block_with_their_strides() -> None:
    plain, replica = network(), Replica(network(), "channels_last")
    convolution = replica.model[0]  # type: ignore[index]  # the network is a Sequential
    assert convolution.weight.is_contiguous(memory_format=torch.channels_last)
    assert convolution.weight.grad.stride() == convolution.weight.stride()
    assert replica.weights.numel() == sum(p.numel() for p in plain.parameters())
    x = torch.randn(5, 1, 4, 4)
    for model in (plain, replica.model):
        model(x).square().sum().backward()
    for mine, other in zip(replica.model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, other)
        torch.testing.assert_close(mine.grad, other.grad)
    replica.check_gradients()
    assert replica.gradients.abs().sum() > 0


def test_three_dimensional_and_transposed_convolutions_are_channels_last_too() -> None:
    solid, transposed, line = nn.Conv3d(2, 4, 3, padding=1), nn.ConvTranspose3d(4, 2, 2, stride=2), nn.Conv1d(3, 3, 3)
    Replica(nn.Sequential(solid, transposed, line), "channels_last")
    assert solid.weight.is_contiguous(memory_format=torch.channels_last_3d)
    assert transposed.weight.is_contiguous(memory_format=torch.channels_last_3d)
    assert line.weight.is_contiguous()


def test_frozen_convolutions_follow_the_layout_outside_of_the_block() -> None:
    frozen, free = nn.Conv2d(2, 4, 3).requires_grad_(False), nn.Conv2d(4, 2, 3)
    before = frozen.weight.clone()
    replica = Replica(nn.Sequential(frozen, free), "channels_last")
    assert replica.weights.numel() == free.weight.numel() + 2
    assert frozen.weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(frozen.weight, before)


def test_only_fp32_buffers_are_moved_and_shared_ones_stay_shared() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Identity(), nn.Identity())
    shared = torch.ones(3)
    model[1].register_buffer("table", shared)
    model[2].register_buffer("table", shared)
    model[2].register_buffer("exact", torch.tensor([0.1], dtype=torch.float64))
    replica = Replica(model)
    assert replica.statistics.numel() == 3
    assert model[1].table is model[2].table
    assert model[2].exact.dtype == torch.float64
    replica.statistics.fill_(7.0)
    assert torch.equal(model[1].get_buffer("table"), torch.full((3,), 7.0))


def test_what_cannot_be_a_replica_is_named() -> None:
    with pytest.raises(ConfigError, match=r"parameter '0\.(weight|bias)' is torch.float64"):
        Replica(nn.Sequential(nn.Linear(2, 2).double()))
    with pytest.raises(ConfigError, match="no trainable weights"):
        Replica(nn.ReLU())
    with pytest.raises(ConfigError, match=r"parameter '0\.(weight|bias)' has no shape yet"):
        Replica(nn.Sequential(nn.LazyLinear(2)))
    two = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    two[1].weight = nn.Parameter(two[0].get_parameter("weight").data)
    with pytest.raises(ConfigError, match=r"'0\.weight' and '1\.weight' share memory"):
        Replica(two)


def test_sparse_gradients_add_up_in_the_block() -> None:
    replica = Replica(nn.Sequential(nn.Embedding(5, 3, sparse=True)))
    replica.model(torch.tensor([1, 1, 2])).sum().backward()
    replica.check_gradients()
    assert replica.gradients.view(5, 3)[:, 0].tolist() == [0.0, 2.0, 1.0, 0.0, 0.0]


def test_a_gradient_that_leaves_the_block_is_named() -> None:
    replica = Replica(nn.Sequential(nn.Linear(2, 2, bias=False)))
    replica.model.zero_grad()  # torch's way: the gradients are dropped, and backward makes new ones
    replica.model(torch.ones(1, 2)).sum().backward()
    with pytest.raises(ConfigError, match=r"parameter '0\.weight' did not add its gradient.*zero_grad"):
        replica.check_gradients()
