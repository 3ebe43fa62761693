from typing import Any

import pytest
import torch
from torch import nn

from deepex.errors import ConfigError
from deepex.optim import Optimiser, OptimiserConfig
from deepex.optim.muon import orthogonal
from deepex.replica import Replica

CASES: dict[str, tuple[dict[str, Any], Any, dict[str, Any]]] = {
    "sgd": ({"name": "sgd", "momentum": 0.0}, torch.optim.SGD, {}),
    "momentum": ({"name": "sgd"}, torch.optim.SGD, {"momentum": 0.9}),
    "nesterov": ({"name": "sgd", "nesterov": True}, torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "adam": ({"name": "adam", "betas": (0.8, 0.99)}, torch.optim.Adam, {"betas": (0.8, 0.99)}),
    "adamw": ({"name": "adamw"}, torch.optim.AdamW, {}),
    "rmsprop": ({"name": "rmsprop", "momentum": 0.0}, torch.optim.RMSprop, {}),
    "rmsprop with momentum": (
        {"name": "rmsprop", "alpha": 0.95, "epsilon": 1e-6},
        torch.optim.RMSprop,
        {"momentum": 0.9, "alpha": 0.95, "eps": 1e-6},
    ),
}
RATE, DECAY = 0.02, 0.05


def network() -> nn.Module:
    """A bias before batch-norm has no gradient but rounding, which Adam would make as large as any: there is none."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(64, 8),
        nn.Tanh(),
        nn.Linear(8, 1),
    )


def train(model: nn.Module, replica: Replica | None, optimiser: Any, clip: float | None, steps: int = 10) -> None:
    """The same batches for ours and theirs."""
    noise = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x = torch.randn(16, 1, 6, 6, generator=noise)
        if replica is None:
            optimiser.zero_grad()
        else:
            replica.gradients.zero_()
        (model(x) - x.mean((1, 2, 3))[:, None]).square().mean().backward()
        if replica is None and clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimiser.step()


@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("decay_vectors", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_one_flat_block_is_updated_as_torch_updates_the_tensors(
    name: str, decay_vectors: bool, clip: float | None
) -> None:
    ours, reference, theirs = CASES[name]
    plain, replica = network(), Replica(network(), "channels_last")
    config = OptimiserConfig(
        learning_rate=RATE, weight_decay=DECAY, decay_vectors=decay_vectors, clip_norm=clip, **ours
    )
    matrices = [p for p in plain.parameters() if p.dim() >= 2]
    vectors = [p for p in plain.parameters() if p.dim() < 2]
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": DECAY if decay_vectors else 0.0}]
    train(plain, None, reference(groups, lr=RATE, weight_decay=DECAY, **theirs), clip)
    train(replica.model, replica, Optimiser(config, replica), clip)
    for mine, other in zip(replica.model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=5e-5)


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
    train(plain, None, theirs, None)
    ours = OptimiserConfig(name="muon", learning_rate=RATE, weight_decay=DECAY)
    train(replica.model, replica, Optimiser(ours, replica), None)
    after = torch.cat([p.detach().flatten() for p in plain.parameters()])
    difference = torch.cat([p.detach().flatten() for p in replica.model.parameters()]) - after
    assert difference.norm() < 0.1 * (after - before).norm()


def test_muon_takes_the_vectors_of_a_network_too_and_goes_on_from_its_state() -> None:
    """In one go, and with the state handed over half-way: the same weights, biases among them."""
    config = OptimiserConfig(name="muon", learning_rate=RATE)
    whole = Replica(network(), "channels_last")
    begun = whole.weights.clone()
    train(whole.model, whole, Optimiser(config, whole), None)
    assert all((entry.parameter != begun[entry.start]).any() for entry in whole.entries)

    halved = Replica(network(), "channels_last")
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


@pytest.mark.parametrize("name", CASES)
def test_a_saved_state_goes_on_bit_for_bit(name: str) -> None:
    config = OptimiserConfig(learning_rate=RATE, **CASES[name][0])
    whole, parts = Replica(network()), Replica(network())
    train(whole.model, whole, (optimiser := Optimiser(config, whole)), None, steps=5)
    parts.block.copy_(whole.block)
    resumed = Optimiser(config, parts)
    resumed.load_state_dict({key: value.clone() for key, value in optimiser.state_dict().items()})
    train(whole.model, whole, optimiser, None, steps=5)
    train(parts.model, parts, resumed, None, steps=5)
    assert torch.equal(whole.block, parts.block)


@pytest.mark.parametrize(
    "wrong",
    [
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"betas": (0.9,)},
        {"betas": (0.9, 1.0)},
        {"weight_decay": -1.0},
        {"momentum": 1.0},
        {"clip_norm": 0.0},
        {"nesterov": True},
        {"name": "sgd", "nesterov": True, "momentum": 0.0},
    ],
)
def test_numbers_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="Allowed"):
        OptimiserConfig(**wrong)
