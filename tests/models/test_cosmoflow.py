from itertools import pairwise

import pytest
import torch
from torch import nn

from deepex.errors import ConfigError, DataError
from deepex.models.cosmoflow import CosmoFlow
from deepex.record.flops import count_flops


def make_meta(shape: tuple[int, int, int, int], *, outputs: int = 4) -> CosmoFlow:
    """A network with shapes and no numbers, so that its size costs nothing."""
    with torch.device("meta"):
        return CosmoFlow(shape=shape, outputs=outputs)


def count_multiply_adds(side: int) -> int:
    filters, total = (4, 32, 64, 128, 256, 512), 0
    for level, (before, after) in enumerate(pairwise(filters)):
        total += 27 * before * after * (side // 2**level) ** 3
    return total + 512 * (side // 32) ** 3 * 128 + 128 * 64 + 64 * 4


@pytest.mark.parametrize(("side", "parameters"), [(128, 8_907_556), (64, 5_237_540), (32, 4_778_788)])
def test_it_is_the_network_of_mlperf_hpc_on_cubes_of_three_sizes(side: int, parameters: int) -> None:
    model, cubes = make_meta((4, side, side, side)), torch.zeros(1, 4, side, side, side, device="meta")
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert model(cubes).shape == (1, 4)
    assert count_flops(lambda: model(cubes)) == 2 * count_multiply_adds(side)


def test_a_large_cube_costs_34_4_billion_multiply_adds() -> None:
    assert round(count_multiply_adds(128) / 1e9, 1) == 34.4


def test_a_step_costs_three_forwards_but_for_the_gradient_of_the_cubes() -> None:
    model, cubes = make_meta((4, 64, 64, 64)), torch.zeros(1, 4, 64, 64, 64, device="meta")
    first_layer = 27 * 4 * 32 * 64**3
    step = count_flops(lambda: model(cubes).sum().backward())
    assert step == 2 * (3 * count_multiply_adds(64) - first_layer)


def test_sides_may_differ() -> None:
    assert make_meta((2, 32, 64, 96), outputs=3)(torch.zeros(5, 2, 32, 64, 96, device="meta")).shape == (5, 3)


def test_outputs_stay_within_1_2_and_reach_beyond_1() -> None:
    model = CosmoFlow(shape=(1, 32, 32, 32), outputs=2).eval()
    outputs = model(1e6 * torch.randn(2, 1, 32, 32, 32))
    assert outputs.abs().max() <= 1.2
    last = model.regressor[-2]
    assert isinstance(last, nn.Linear)
    nn.init.constant_(last.bias, 3.0)
    assert model(torch.zeros(1, 1, 32, 32, 32)).min() > 1


def test_a_gradient_reaches_every_parameter() -> None:
    model = CosmoFlow(shape=(1, 32, 32, 32))
    model(torch.randn(2, 1, 32, 32, 32)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


@pytest.mark.parametrize("shape", [(4, 16, 16, 16), (4, 48, 32, 32), (0, 32, 32, 32), (32, 32, 32)])
def test_a_shape_that_does_not_halve_five_times_is_refused(shape: tuple[int, int, int, int]) -> None:
    with pytest.raises(ConfigError, match="each side at least 32 and a multiple of 32") as error:
        make_meta(shape)
    assert str(shape) in str(error.value)


def test_no_output_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"CosmoFlow was asked for 0 .*Allowed: whole numbers from 1"):
        make_meta((4, 32, 32, 32), outputs=0)


def test_a_batch_of_another_shape_is_refused() -> None:
    with pytest.raises(DataError, match=r"shape \(1, 4, 64, 64, 64\), and takes samples of shape \(4, 32, 32, 32\)"):
        make_meta((4, 32, 32, 32))(torch.zeros(1, 4, 64, 64, 64, device="meta"))
