"""The weight gradients are torch's own to rounding. torch's are asked for before ours are installed, in fp64."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from deepex.kernels import convolution
from deepex.kernels.convolution import install_convolution, multiply, weight_gradient

GEOMETRIES = [
    # image sides, kernel, stride, padding, dilation
    ((9, 8), (3, 3), (1, 1), (1, 1), (1, 1)),
    ((9, 8), (3, 2), (2, 1), (0, 1), (1, 1)),
    ((13, 12), (3, 3), (1, 1), (2, 2), (2, 2)),
    ((9, 8), (1, 1), (1, 1), (0, 0), (1, 1)),
    ((9, 8), (1, 1), (2, 2), (0, 0), (1, 1)),
    ((6, 5, 7), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1)),
    ((6, 5, 7), (2, 3, 1), (2, 1, 2), (0, 1, 0), (1, 1, 1)),
]


def order(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d)


@pytest.mark.parametrize("piece", [1, 5000, 2**20])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_any_geometry_in_pieces_of_any_size(
    geometry: tuple[tuple[int, ...], ...], piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convolution, "PIECE", piece)
    monkeypatch.setattr(convolution, "LEAST_ROWS", 1)
    sides, size, stride, padding, dilation = geometry
    x, w = order(torch.randn(3, 5, *sides)), torch.randn(4, 5, *size, dtype=torch.float64, requires_grad=True)
    convolve = functional.conv2d if len(sides) == 2 else functional.conv3d
    y = convolve(x.double(), w, stride=stride, padding=padding, dilation=dilation)
    out = torch.randn(y.shape)
    torch.autograd.backward(y, out.double())
    found = weight_gradient(x, order(out), size, stride, padding, dilation)
    assert w.grad is not None
    torch.testing.assert_close(found.double(), w.grad, rtol=1e-4, atol=1e-4)
    assert order(found).stride() == found.stride()


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolution": (lambda: nn.Conv2d(32, 40, 3, padding=1), (8, 32, 20, 18)),
    "strided 1x1": (lambda: nn.Conv2d(64, 64, 1, stride=2, bias=False), (8, 64, 40, 40)),
    "transposed": (lambda: nn.ConvTranspose2d(40, 64, 3, stride=2, padding=1, output_padding=1), (4, 40, 20, 16)),
    "three dimensions": (lambda: nn.Conv3d(128, 24, 3, padding=1), (2, 128, 6, 7, 6)),
    "few channels": (lambda: nn.Conv3d(4, 16, 3, padding=1), (2, 4, 24, 24, 24)),
    "grouped": (lambda: nn.Conv2d(64, 64, 3, padding=1, groups=64), (4, 64, 30, 30)),
    "contiguous": (lambda: nn.Conv2d(64, 64, 3), (4, 64, 24, 24)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_get_the_gradients_that_torch_gives(name: str) -> None:
    make, shape = NETWORKS[name]
    torch.manual_seed(0)
    mine = make() if name == "contiguous" else order_weights(make())
    x = torch.randn(shape, requires_grad=True)
    reference, exact = make().double(), x.detach().double().requires_grad_()
    reference.load_state_dict(mine.state_dict())
    out = torch.randn_like(mine(x))
    torch.autograd.backward(reference(exact), out.double())
    install_convolution()
    torch.autograd.backward(mine(x), out)
    for got, expected in [
        (x.grad, exact.grad),
        *((p.grad, r.grad) for p, r in zip(mine.parameters(), reference.parameters(), strict=True)),
    ]:
        assert got is not None
        assert expected is not None
        scale = expected.abs().max().item()
        torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-5 * scale)


def order_weights(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        if parameter.dim() in (4, 5):
            parameter.data = order(parameter.data)
    return module


def test_only_what_gains_is_taken_from_torch() -> None:
    asked: list[list[bool]] = []

    def torch_kernel(*operands: object) -> tuple[Tensor, Tensor, Tensor]:
        mask = operands[-1]
        assert isinstance(mask, list)
        asked.append(mask)
        return torch.zeros(1), torch.zeros(1), torch.zeros(1)

    kernel = multiply(torch_kernel)

    def call(channels: int, sides: tuple[int, ...], dtype: torch.dtype = torch.float32, groups: int = 1) -> list[bool]:
        dimensions = len(sides)
        x = order(torch.randn(2, channels, *sides).to(dtype))
        w = order(torch.randn(32, channels // groups, *[3] * dimensions).to(dtype))
        y = order(torch.randn(2, 32, *sides).to(dtype))
        ones, zeros = [1] * dimensions, [0] * dimensions
        kernel(y, x, w, [32], ones, ones, ones, False, zeros, groups, [True, True, True])
        return asked.pop()

    everything, images_alone, no_bias = [True, True, True], [True, False, False], [True, True, False]
    assert call(64, (40, 40)) == images_alone
    assert call(128, (12, 12, 12)) == images_alone
    assert call(4, (24, 24, 24)) == no_bias  # too few columns
    assert call(64, (4, 4)) == no_bias  # too little to do
    assert call(64, (40, 40), groups=32) == everything
    assert call(64, (40, 40), dtype=torch.float64) == everything


def test_a_gradient_of_a_gradient_still_works() -> None:
    install_convolution()
    module = order_weights(nn.Conv2d(32, 32, 3, padding=1))
    x = torch.randn(4, 32, 24, 24, requires_grad=True)
    (first,) = torch.autograd.grad(module(x).square().sum(), x, create_graph=True)
    torch.autograd.backward(first.square().sum())
    assert all(p.grad is not None and math.isfinite(p.grad.sum().item()) for p in module.parameters())
