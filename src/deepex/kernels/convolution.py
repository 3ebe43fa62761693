"""Weight gradients of convolutions as large matrix products, for processors with AVX2 alone.

There oneDNN computes forward and input gradients near the rate of a matrix product, but weight gradients of
channels-last images at a half to a sixth of it, and a bias beside them at less. Here a piece of the images is unfolded
so that it fits into the cache and multiplied by the library's GEMM. Other convolutions, and other processors, keep
torch's own kernel. It knows tensors, and nothing of networks.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from deepex.kernels.override import Kernel, override

PIECE = 2**20  # unfolded elements at a time: 4 MiB, so that they are still in the cache when they are multiplied
LEAST_ROWS = 256  # of a piece; fewer leave the matrix product waiting for memory
LEAST_FLOPS = 2**26  # below, the few calls cost more than they save
LEAST_COLUMNS = {2: 256, 3: 3456}  # by image dimensions; with fewer, torch's kernel was as fast or faster (docs/log.md)


def install_convolution() -> bool:
    """Take the place of torch's kernel in this process, where it gains; whether it does."""
    if torch.backends.cpu.get_cpu_capability() != "AVX2":
        return False
    override("convolution_backward", __name__, multiply)
    return True


def weight_gradient(
    images: Tensor,
    gradient: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    """The gradient of a convolution's weights (O x C x K), with channels-last strides.

    dW[o, c, k] = sum over b, p of gradient[b, o, p] images[b, c, stride p + dilation k - padding]

    Arguments:
        images: what went in, B x C x sides.
        gradient: of what came out, B x O x sides.
        size: of the kernel, K.

    >>> x, w = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3, requires_grad=True)
    >>> y = functional.conv2d(x, w, padding=1)
    >>> y.sum().backward()
    >>> found = weight_gradient(x, torch.ones_like(y), (3, 3), (1, 1), (1, 1), (1, 1))
    >>> bool(torch.allclose(found, w.grad, atol=1e-4))
    True
    """
    channels, filters = images.shape[1], gradient.shape[1]
    rows = gradient.movedim(1, -1)
    windows = _windows(images, rows.shape[1:-1], size, stride, padding, dilation)
    columns = channels * math.prod(size)
    if math.prod(size) == 1:
        product = windows.reshape(-1, columns).t() @ rows.reshape(-1, filters)
    else:
        product = _multiply_in_pieces(windows, rows.contiguous(), columns)
    return product.t().contiguous().view(filters, *size, channels).movedim(-1, 1)


def _windows(
    images: Tensor,
    sides: Sequence[int],
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    """What the kernel sees at each place, B x sides x K x C, as a view of the padded images."""
    inner = images.movedim(1, -1)
    pads = [0, 0] + [amount for side in reversed(padding) for amount in (side, side)]
    inner = functional.pad(inner, pads) if any(padding) else inner.contiguous()
    batch, *steps, one = inner.stride()
    strides = [
        batch,
        *(a * b for a, b in zip(steps, stride, strict=True)),
        *(a * b for a, b in zip(steps, dilation, strict=True)),
        one,
    ]
    return inner.as_strided((len(images), *sides, *size, images.shape[1]), strides)


def _multiply_in_pieces(windows: Tensor, rows: Tensor, columns: int) -> Tensor:
    """Unfolded windows, transposed, times rows: whole images at a time, or lines of one image."""
    filters = rows.shape[-1]
    budget = max(PIECE, LEAST_ROWS * columns)
    places = math.prod(rows.shape[1:-1])
    if places * columns <= budget:
        count = budget // (places * columns)
        pieces = list(zip(torch.split(windows, count), torch.split(rows, count), strict=True))
    else:
        count = max(1, budget // (places // rows.shape[1] * columns))
        pieces = [
            piece
            for image, lines in zip(windows, rows, strict=True)
            for piece in zip(torch.split(image, count), torch.split(lines, count), strict=True)
        ]
    unfolded = windows.new_empty(pieces[0][0].numel())
    product = windows.new_zeros(columns, filters)
    for window, lines in pieces:
        piece = unfolded[: window.numel()].view(window.shape).copy_(window)
        product.addmm_(piece.view(-1, columns).t(), lines.reshape(-1, filters))
    return product


def multiply(before: Kernel) -> Kernel:
    """The operator with weight gradients by matrix products where they gain, and the bias by a sum of its own."""

    def backward(
        gradient: Tensor,
        images: Tensor,
        weight: Tensor,
        bias_sizes: Sequence[int] | None,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        transposed: bool,
        output_padding: Sequence[int],
        groups: int,
        output_mask: Sequence[bool],
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        def ask_torch(mask: Sequence[bool]) -> Any:
            settings = (stride, padding, dilation, transposed, output_padding, groups, mask)
            return before(gradient, images, weight, bias_sizes, *settings)

        if groups != 1 or not _is_ours(gradient, images, weight):
            return ask_torch(output_mask)  # type: ignore[no-any-return]  # the operator's own answer
        wants_images, wants_weight, wants_bias = output_mask
        by_product = wants_weight and _gains(images, gradient, weight, transposed)
        image_gradient = weight_grad = bias_gradient = None
        if wants_images or (wants_weight and not by_product):
            image_gradient, weight_grad, _ = ask_torch([wants_images, wants_weight and not by_product, False])
        if by_product:
            # A transposed convolution is a convolution from its output to its input.
            into, out_of = (gradient, images) if transposed else (images, gradient)
            weight_grad = weight_gradient(into, out_of, weight.shape[2:], stride, padding, dilation)
        if wants_bias:
            bias_gradient = gradient.sum((0, *range(2, gradient.dim())))
        return image_gradient, weight_grad, bias_gradient

    return backward


def _is_ours(gradient: Tensor, images: Tensor, weight: Tensor) -> bool:
    """Dense fp32 in channels-last order, two or three image dimensions, and enough to do."""
    if weight.dim() not in (4, 5) or weight.dtype != torch.float32 or gradient.dtype != torch.float32:
        return False
    order = torch.channels_last if weight.dim() == 4 else torch.channels_last_3d
    return weight.is_contiguous(memory_format=order) and images.device.type == "cpu" and gradient.numel() > 0


def _gains(images: Tensor, gradient: Tensor, weight: Tensor, transposed: bool) -> bool:
    """Whether the product is large enough, and wide enough, to be faster than torch's kernel."""
    taps = math.prod(weight.shape[2:])
    columns = weight.shape[1] * taps  # of a transposed convolution too: its weights stand the other way round
    places = images if transposed else gradient
    flops = 2 * places.numel() // places.shape[1] * weight.numel()
    return flops >= LEAST_FLOPS and (taps == 1 or columns >= LEAST_COLUMNS[weight.dim() - 2])
