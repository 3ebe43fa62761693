from typing import Any

import pytest
import torch
from torch import nn

from deepex.optim import Optimiser, OptimiserConfig
from deepex.optim.muon import orthogonal
from deepex.replica import Replica
from tests.optim.training import DECAY, RATE, make_network, train


def test_muon_is_torchs_on_matrices_but_for_its_rounding() -> None:
    """Torch's takes matrices only, and makes them orthogonal in bf16."""

    def matrices() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(36, 48, bias=False),
            nn.Tanh(),
            nn.Linear(48, 8, bias=False),
            nn.Linear(8, 1, bias=False),
        )

    plain, replica = matrices(), Replica(matrices())
    before = torch.cat([p.detach().flatten() for p in plain.parameters()])
    theirs = torch.optim.Muon(plain.parameters(), lr=RATE, weight_decay=DECAY, momentum=0.9)
    train(plain, None, theirs)
    ours = OptimiserConfig(name="muon", learning_rate=RATE, weight_decay=DECAY)
    train(replica.model, replica, Optimiser(ours, replica))
    after = torch.cat([p.detach().flatten() for p in plain.parameters()])
    difference = torch.cat([p.detach().flatten() for p in replica.model.parameters()]) - after
    assert difference.norm() < 0.1 * (after - before).norm()


def test_muon_takes_the_vectors_of_a_network_too_and_goes_on_from_its_state() -> None:
    """In one go, and with the state handed over half-way: the same weights, biases among them."""
    config = OptimiserConfig(name="muon", learning_rate=RATE)
    whole = Replica(make_network(), "channels_last")
    begun = whole.weights.clone()
    train(whole.model, whole, Optimiser(config, whole))
    assert all((entry.parameter != begun[entry.start]).any() for entry in whole.entries)

    halved = Replica(make_network(), "channels_last")
    noise = torch.Generator().manual_seed(1)
    state: dict[str, Any] = {}
    for _ in range(10):
        optimiser = Optimiser(config, halved)
        if state:
            optimiser.load_state_dict(state)
        x = torch.randn(16, 1, 6, 6, generator=noise)
        halved.gradients.zero_()
        (halved.model(x) - x.mean((1, 2, 3))[:, None]).square().mean().backward()
        optimiser.step()
        state = {name: tensor.clone() for name, tensor in optimiser.state_dict().items()}
    assert torch.equal(whole.weights, halved.weights)


@pytest.mark.parametrize("shape", [(4, 40), (40, 4), (16, 16)])
def test_orthogonal_keeps_directions_and_evens_out_their_sizes(shape: tuple[int, int]) -> None:
    """Singular values over three orders of magnitude come out between 0.2 and 1.3, with the vectors they had."""
    torch.manual_seed(0)
    left, _, right = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    sizes = torch.logspace(0, -3, min(shape))
    found = left.T @ orthogonal(left @ torch.diag(sizes) @ right) @ right.T
    assert ((found.diagonal() > 0.2) & (found.diagonal() < 1.3)).all()
    assert (found - torch.diag(found.diagonal())).abs().max() < 1e-3
