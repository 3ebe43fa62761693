import pytest
import torch
from torch import nn

from deepex.errors import ConfigError
from deepex.optim import OptimiserConfig, build_optimiser
from deepex.replica import Replica

CASES = {
    "sgd": (
        OptimiserConfig(name="sgd", learning_rate=0.05, momentum=0.9, weight_decay=0.01),
        torch.optim.SGD,
        {"momentum": 0.9},
    ),
    "adam": (OptimiserConfig(name="adam", learning_rate=0.05, weight_decay=0.01), torch.optim.Adam, {}),
    "adamw": (OptimiserConfig(name="adamw", learning_rate=0.05, weight_decay=0.01), torch.optim.AdamW, {}),
}


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))


@pytest.mark.parametrize("name", CASES)
def test_one_flat_tensor_is_updated_as_the_tensors_would_be(name: str) -> None:
    config, reference, more = CASES[name]
    plain, replica = network(), Replica(network())
    theirs = reference(plain.parameters(), lr=0.05, weight_decay=0.01, **more)
    ours = build_optimiser(config, replica)
    x = torch.randn(32, 6)
    for _ in range(20):
        theirs.zero_grad()
        replica.gradients.zero_()
        plain(x).square().mean().backward()
        replica.model(x).square().mean().backward()
        theirs.step()
        ours.step()
    for mine, other in zip(replica.model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("wrong", [{"learning_rate": 0.0}, {"betas": (0.9,)}, {"betas": (0.9, 1.0)}])
def test_numbers_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="Allowed"):
        OptimiserConfig(**wrong)  # type: ignore[arg-type]  # that is the point
