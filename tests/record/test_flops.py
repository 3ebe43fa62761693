from collections.abc import Callable
from math import log2, prod
from time import perf_counter

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # its usual name
from torch import Tensor, nn

from deepex.record.flops import count_flops, measure_gemm_peak


def backward(output: Tensor) -> None:
    (torch.view_as_real(output) if output.is_complex() else output).sum().backward()  # type: ignore[no-untyped-call]  # torch


def test_a_dense_layer_costs_what_it_costs() -> None:
    layer, x = nn.Linear(30, 20), torch.randn(7, 30)
    assert count_flops(lambda: layer(x)) == 2 * 7 * 30 * 20


def test_a_dense_layer_s_backward_costs_a_forward_for_each_gradient_asked_for() -> None:
    layer, forward = nn.Linear(30, 20), 2 * 7 * 30 * 20
    assert count_flops(lambda: backward(layer(torch.randn(7, 30)))) == 2 * forward
    assert count_flops(lambda: backward(layer(torch.randn(7, 30, requires_grad=True)))) == 3 * forward


def test_products_with_vectors_count() -> None:
    matrix, vector = torch.randn(5, 6), torch.randn(6)
    assert count_flops(lambda: matrix @ vector) == 2 * 5 * 6
    assert count_flops(lambda: torch.addmv(torch.ones(5), matrix, vector)) == 2 * 5 * 6
    assert count_flops(lambda: vector @ vector) == 2 * 6
    assert count_flops(lambda: torch.addbmm(torch.ones(2, 4), torch.ones(3, 2, 5), torch.ones(3, 5, 4))) == 240


def test_a_complex_product_is_four_real_ones() -> None:
    modes, weights = torch.randn(2, 3, 8, dtype=torch.cfloat), torch.randn(3, 5, 8, dtype=torch.cfloat)
    assert count_flops(lambda: torch.einsum("bim,iom->bom", modes, weights)) == 4 * (2 * 2 * 3 * 5 * 8)
    assert count_flops(lambda: torch.addmm(modes[0], weights[0, :3, :3], modes[0])) == 4 * (2 * 3 * 3 * 8)


BATCH, CHANNELS, FILTERS, SIDE, KERNEL = 2, 12, 24, 11, 3
CONVOLUTIONS: dict[int, Callable[..., nn.Module]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED: dict[int, Callable[..., nn.Module]] = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 3, CHANNELS])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2), (3, 2)])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_convolution_costs_the_same_in_the_forward_and_for_each_gradient(
    axes: int, stride: int, dilation: int, groups: int, transposed: bool
) -> None:
    kind = (TRANSPOSED if transposed else CONVOLUTIONS)[axes]
    layer = kind(CHANNELS, FILTERS, KERNEL, stride=stride, dilation=dilation, padding=1, groups=groups)
    x = torch.randn(BATCH, CHANNELS, *[SIDE] * axes)
    # A transposed convolution spreads each input; another gathers each output.
    positions = SIDE if transposed else (SIDE + 2 - dilation * (KERNEL - 1) - 1) // stride + 1
    forward = 2 * BATCH * positions**axes * KERNEL**axes * CHANNELS * FILTERS // groups

    assert count_flops(lambda: layer(x)) == forward
    assert count_flops(lambda: backward(layer(x))) == 2 * forward  # of the weights only
    x.requires_grad_()
    assert count_flops(lambda: backward(layer(x))) == 3 * forward
    layer.requires_grad_(False)
    assert count_flops(lambda: backward(layer(x))) == 2 * forward  # of the input only


def test_a_depthwise_convolution_costs_its_nine_products_a_pixel() -> None:
    layer, x = nn.Conv2d(32, 32, 3, padding=1, groups=32, bias=False), torch.randn(1, 32, 16, 16, requires_grad=True)
    assert count_flops(lambda: layer(x)) == 2 * 9 * 32 * 16 * 16
    assert count_flops(lambda: backward(layer(x))) == 3 * (2 * 9 * 32 * 16 * 16)


@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_a_grouped_convolution_costs_what_its_groups_cost_by_themselves(
    kind: type[nn.Conv2d] | type[nn.ConvTranspose2d],
) -> None:
    whole = kind(12, 8, 3, groups=4, stride=2)
    parts = [kind(3, 2, 3, stride=2) for _ in range(4)]
    x = torch.randn(2, 12, 9, 9, requires_grad=True)

    def run_parts() -> None:
        for part, channels in zip(parts, x.chunk(4, dim=1), strict=True):
            backward(part(channels))

    assert count_flops(lambda: backward(whole(x))) == count_flops(run_parts)


B, H, L, M, D = 2, 4, 5, 7, 8  # batch, heads, queries, keys, width of a head


def make_heads(*, heads: int = H, length: int = M, width: int = D) -> Tensor:
    return torch.randn(B, heads, length, width, requires_grad=True)


def test_attention_is_two_products_forward_and_five_backward_when_fused() -> None:
    query, key, value = make_heads(length=L), make_heads(), make_heads()
    product = 2 * B * H * L * M * D
    assert count_flops(lambda: F.scaled_dot_product_attention(query, key, value)) == 2 * product
    assert count_flops(lambda: backward(F.scaled_dot_product_attention(query, key, value))) == (2 + 5) * product


def test_attention_in_single_steps_keeps_its_scores_and_needs_four_products_backward() -> None:
    query, key, value = make_heads(length=L), make_heads(), make_heads(width=6)
    total = count_flops(lambda: backward(F.scaled_dot_product_attention(query, key, value, dropout_p=0.1)))
    assert total == 3 * (2 * B * H * L * M * D) + 3 * (2 * B * H * L * M * 6)


def test_attention_with_shared_keys_costs_what_it_costs_without_sharing() -> None:
    query, key = make_heads(length=L), make_heads(heads=2)
    total = count_flops(lambda: backward(F.scaled_dot_product_attention(query, key, key, enable_gqa=True)))
    assert total == 7 * (2 * B * H * L * M * D)


def test_multihead_attention_is_four_projections_and_two_products() -> None:
    layer, x = nn.MultiheadAttention(D, 2, batch_first=True), torch.randn(B, L, D)
    projections, product = 4 * (2 * B * L * D * D), 2 * B * L * L * D
    assert count_flops(lambda: layer(x, x, x)) == projections + 2 * product
    assert count_flops(lambda: layer(x, x, x, need_weights=False)) == projections + 2 * product
    # The input takes no gradient, so three of the four projections give that of their weights only.
    forward_and_backward = (3 * projections - 3 * projections // 4) + (2 + 5) * product
    assert count_flops(lambda: backward(layer(x, x, x, need_weights=False)[0])) == forward_and_backward
    layer.eval()
    with torch.no_grad():  # torch then runs it in one piece
        assert count_flops(lambda: layer(x, x, x)) == projections + 2 * product


def test_a_transformer_costs_the_same_with_and_without_gradients() -> None:
    network, x = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, 2, 16, batch_first=True), 3), torch.randn(B, L, D)
    forward = 3 * (4 * (2 * B * L * D * D) + 2 * (2 * B * L * L * D) + 2 * (2 * B * L * D * 16))
    assert count_flops(lambda: network(x)) == forward
    network.eval()
    with torch.no_grad():
        assert count_flops(lambda: network(x)) == forward


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_transformer_that_skips_padding_is_counted_by_the_length_of_its_sequences() -> None:
    network = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, 2, 16, batch_first=True), 3).eval()
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    tokens = 5 + 3
    forward = 3 * (4 * (2 * tokens * D * D) + 2 * (2 * B * L * L * D) + 2 * (2 * tokens * D * 16))
    with torch.no_grad():
        assert count_flops(lambda: network(torch.randn(B, L, D), src_key_padding_mask=padding)) == forward


Transform = Callable[..., Tensor]


@pytest.mark.parametrize(("transform", "axes"), [(torch.fft.fft, 1), (torch.fft.fft2, 2), (torch.fft.ifftn, 3)])
def test_a_complex_transform_costs_five_n_log_n(transform: Transform, axes: int) -> None:
    shape = (3, 4, 8, 16)
    x = torch.randn(shape, dtype=torch.cfloat, requires_grad=True)
    points, batch = prod(shape[-axes:]), prod(shape[:-axes])
    dim = tuple(range(-axes, 0)) if axes > 1 else -1
    forward = batch * 5 * points * round(log2(points))
    assert count_flops(lambda: transform(x, dim=dim)) == forward
    assert count_flops(lambda: backward(transform(x, dim=dim))) == 2 * forward


def test_a_real_transform_costs_half_and_its_gradient_a_complex_one() -> None:
    x = torch.randn(3, 8, 16, requires_grad=True)
    half = 3 * 5 * 128 * 7 // 2
    assert count_flops(lambda: torch.fft.rfft2(x)) == half
    assert count_flops(lambda: backward(torch.fft.rfft2(x))) == half + 2 * half
    spectrum = torch.fft.rfft2(x.detach()).requires_grad_()
    assert count_flops(lambda: torch.fft.irfft2(spectrum)) == half
    assert count_flops(lambda: backward(torch.fft.irfft2(spectrum))) == 2 * half


def test_a_transform_along_one_axis_leaves_the_others_as_a_batch() -> None:
    x = torch.randn(3, 8, 16, dtype=torch.cfloat)
    assert count_flops(lambda: torch.fft.fft(x, dim=1)) == 3 * 16 * (5 * 8 * 3)
    assert count_flops(lambda: torch.fft.fft(x, n=32, dim=1)) == 3 * 16 * (5 * 32 * 5)


STEPS, INPUTS, HIDDEN = 4, 5, 6
RECURRENT: list[tuple[Callable[..., nn.Module], int]] = [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)]


@pytest.mark.parametrize(("kind", "gates"), RECURRENT)
@pytest.mark.parametrize("batch_first", [False, True])
def test_a_recurrent_layer_costs_its_gates_products(
    kind: Callable[..., nn.Module], gates: int, batch_first: bool
) -> None:
    layer = kind(INPUTS, HIDDEN, batch_first=batch_first)
    x = torch.randn((B, STEPS, INPUTS) if batch_first else (STEPS, B, INPUTS))
    forward = 2 * STEPS * B * gates * HIDDEN * (INPUTS + HIDDEN)
    assert count_flops(lambda: layer(x)) == forward
    layer.eval()
    assert count_flops(lambda: layer(x)) == forward
    with torch.no_grad():
        assert count_flops(lambda: layer(x)) == forward


def test_a_deep_lstm_in_both_directions_costs_each_layer_and_direction() -> None:
    layer, x = nn.LSTM(INPUTS, HIDDEN, num_layers=2, bidirectional=True), torch.randn(STEPS, B, INPUTS)
    first, second = 2 * (4 * HIDDEN) * (INPUTS + HIDDEN), 2 * (4 * HIDDEN) * (2 * HIDDEN + HIDDEN)
    forward = STEPS * B * 2 * (first + second)
    assert count_flops(lambda: layer(x)) == forward
    # The fused layer gives the gradient of its input in any case.
    assert count_flops(lambda: backward(layer(x)[0])) == 3 * forward


def test_an_lstm_in_single_steps_costs_what_the_fused_one_does_but_for_gradients_that_nobody_needs() -> None:
    layer, x = nn.LSTM(INPUTS, HIDDEN).double(), torch.randn(STEPS, B, INPUTS).double()
    forward = 2 * STEPS * B * 4 * HIDDEN * (INPUTS + HIDDEN)
    of_the_input, of_the_first_state = 2 * STEPS * B * 4 * HIDDEN * INPUTS, 2 * B * 4 * HIDDEN * HIDDEN
    assert count_flops(lambda: layer(x)) == forward
    assert count_flops(lambda: backward(layer(x)[0])) == 3 * forward - of_the_input - of_the_first_state


def test_a_step_that_differentiates_twice_is_counted() -> None:
    network = nn.Sequential(nn.Linear(3, 8, bias=False), nn.Tanh(), nn.Linear(8, 1, bias=False))

    def fit_forces() -> None:
        positions = torch.randn(5, 3, requires_grad=True)
        (forces,) = torch.autograd.grad(network(positions).sum(), positions, create_graph=True)
        forces.square().sum().backward()  # type: ignore[no-untyped-call]  # torch

    first, second = 2 * 5 * 3 * 8, 2 * 5 * 8 * 1
    # Through the gradient's two products: of both weights, and of what stands between them. Then, through tanh, of the
    # first layer's weights and input. The energy's own gradient is a constant and takes none.
    assert count_flops(fit_forces) == (first + second) + (second + first) + (first + first + second) + (first + first)


def test_no_operation_but_products_counts() -> None:
    x = torch.randn(2, 4, 8, 8, requires_grad=True)
    assert count_flops(lambda: backward(nn.BatchNorm2d(4)(F.max_pool2d(x.relu(), 2)))) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_peak_is_a_rate_that_a_processor_can_have_and_soon_known(dtype: torch.dtype) -> None:
    start = perf_counter()
    assert 1e7 < measure_gemm_peak(torch.device("cpu"), dtype) < 1e15
    assert perf_counter() - start < 10  # without an end to it, bf16 takes 40 s on a processor that lacks it
