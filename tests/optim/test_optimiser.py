import pytest
import torch
from torch import nn

from deepex.optim import OPTIMISERS, Optimiser, OptimiserConfig
from deepex.replica import Replica
from tests.optim.training import RATE, make_network, train


@pytest.mark.parametrize("name", OPTIMISERS)
def test_an_optimiser_changes_all_weights_and_brings_the_loss_down(name: str) -> None:
    replica = Replica(make_network(), "channels_last")
    weights, loss = replica.weights.clone(), _measure_loss(replica.model)
    optimiser = Optimiser(OptimiserConfig(name=name, learning_rate=2e-3), replica)
    train(replica.model, replica, optimiser, steps=1)
    assert (replica.weights != weights).all()  # after many, steps of one size may lead back to where they began
    train(replica.model, replica, optimiser, steps=60)
    assert _measure_loss(replica.model) < 0.8 * loss


def _measure_loss(model: nn.Module) -> float:
    x = torch.randn(256, 1, 6, 6, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        return float((model(x) - x.mean((1, 2, 3))[:, None]).square().mean())


def test_decay_that_leaves_out_vectors_shrinks_only_matrices() -> None:
    replica = Replica(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)))
    replica.weights.fill_(1.0)
    config = OptimiserConfig(name="sgd", momentum=0.0, learning_rate=0.5, weight_decay=0.1, decay_vectors=False)
    Optimiser(config, replica).step()
    linear, norm = replica.model[0], replica.model[1]  # type: ignore[index]  # a Sequential
    assert (linear.weight == 0.95).all()
    assert (linear.bias == 1.0).all()
    assert (norm.weight == 1.0).all()


def test_clipping_bounds_the_norm_of_the_whole_gradient_and_leaves_a_small_one() -> None:
    replica = Replica(nn.Linear(3, 2))
    before = replica.weights.clone()
    config = OptimiserConfig(name="sgd", momentum=0.0, learning_rate=1.0, clip_norm=2.0)
    replica.gradients.fill_(100.0)
    Optimiser(config, replica).step()
    assert torch.linalg.vector_norm(before - replica.weights).item() == pytest.approx(2.0, rel=1e-5)
    before.copy_(replica.weights)
    replica.gradients.fill_(0.01)
    Optimiser(config, replica).step()
    torch.testing.assert_close(before - replica.weights, torch.full_like(before, 0.01))


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_saved_state_goes_on_bit_for_bit(name: str) -> None:
    config = OptimiserConfig(name=name, learning_rate=RATE)
    whole, parts = Replica(make_network()), Replica(make_network())
    train(whole.model, whole, (optimiser := Optimiser(config, whole)), steps=5)
    parts.block.copy_(whole.block)
    resumed = Optimiser(config, parts)
    resumed.load_state_dict({key: value.clone() for key, value in optimiser.state_dict().items()})
    train(whole.model, whole, optimiser, steps=5)
    train(parts.model, parts, resumed, steps=5)
    assert torch.equal(whole.block, parts.block)
