import pytest
import torch

from deepex.models.cvae import CVAE


@pytest.mark.parametrize(("size", "parameters"), [("paper", 26_384_647), ("small", 413_959)])
def test_sizes(size: str, parameters: int) -> None:
    model = CVAE(side=28, latent=3, size=size)
    count = sum(p.numel() for p in model.parameters())
    assert count == parameters
    logits, mean, log_variance = model(torch.zeros(2, 28, 28))
    assert logits.shape == (2, 28, 28)
    assert mean.shape == log_variance.shape == (2, 3)


def test_the_paper_s_dense_layers() -> None:
    shapes = {tuple(p.shape) for p in CVAE(side=28, latent=3, size="paper").parameters()}
    assert {(128, 100352), (100352, 128), (128, 1, 3, 3), (128, 128, 3, 3)} <= shapes


@pytest.mark.parametrize("side", [5, 20, 28, 35])
@pytest.mark.parametrize("size", ["small", "paper"])
def test_any_side_is_mirrored(side: int, size: str) -> None:
    assert CVAE(side=side, latent=2, size=size)(torch.zeros(1, side, side))[0].shape == (1, side, side)


def test_noise_is_drawn_only_while_training() -> None:
    model = CVAE(side=12, latent=3, size="small")
    maps = torch.rand(4, 12, 12)
    assert not torch.equal(model(maps)[0], model(maps)[0])
    model.eval()
    assert torch.equal(model(maps)[0], model(maps)[0])
