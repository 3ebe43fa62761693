"""Operations that torch's FLOP counter miscounts or passes over, each with the rule that counts it.

A rule takes an operator's own arguments and its result, and counts two for a multiply-add. The rules know nothing of
element-wise work (activations, normalisation, pooling, losses), of sparse matrices, which count as if they were dense,
or of the fused recurrent layers of GPUs.
"""

from collections.abc import Callable, Sequence
from math import log2, prod
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def product_flops(left: Tensor, right: Tensor, *_: object, **__: object) -> int:
    """A product of matrices, of batches of them, or with a vector; torch takes complex numbers for real ones."""
    columns = right.shape[-1] if right.dim() > 1 else 1
    multiply_add = 8 if left.is_complex() else 2  # (a + bi)(c + di) is four products, and four sums with the total
    return multiply_add * left.numel() * columns


def added_product_flops(_: Tensor, left: Tensor, right: Tensor, *__: object, **___: object) -> int:
    """A product that is added to something, such as a bias."""
    return product_flops(left, right)


def convolution_backward_flops(
    grad_output: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: object,
    stride: object,
    padding: object,
    dilation: object,
    transposed: bool,
    output_padding: object,
    groups: int,
    output_mask: Sequence[bool],
    **_: object,
) -> int:
    """Gradients of a convolution: that of its input and that of its weights each cost what the forward costs.

    At each position of the filter each weight is used once; groups are already in the weights' shape, which torch
    overlooks in the gradient of the weights.
    """
    positions = prod((x if transposed else grad_output).shape[2:])
    return 2 * x.shape[0] * positions * weight.numel() * sum(output_mask[:2])


def attention_flops(query: Tensor, key: Tensor, value: Tensor, *_: object, **__: object) -> int:
    """softmax(Q Kᵀ) V: two products. What a causal mask may skip is counted too, as everywhere in torch."""
    return 2 * _scores(query, key) * (query.shape[-1] + value.shape[-1])


def attention_backward_flops(
    grad_output: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: object, **__: object
) -> int:
    """Five products: Q Kᵀ once more, since the fused kernel keeps no scores, and the gradients of P, V, Q and K."""
    return 2 * _scores(query, key) * (3 * query.shape[-1] + 2 * value.shape[-1])


def _scores(query: Tensor, key: Tensor) -> int:
    """Scores of all heads (B x H x L x D), the queries' where several of them share a key."""
    return prod(query.shape[:-1]) * key.shape[-2]


def inference_attention_flops(
    query: Tensor, key: Tensor, value: Tensor, width: int, heads: int, *_: object, **__: object
) -> int:
    """nn.MultiheadAttention in one piece, without gradients: three projections, attention, and one projection."""
    queries, keys, values = _lengths(query), _lengths(key), _lengths(value)
    projections = (2 * sum(queries) + sum(keys) + sum(values)) * width * width
    scores = len(queries) * max(queries) * max(keys)  # shorter sequences are padded for these
    return 2 * (projections + 2 * scores * width)


def inference_layer_flops(x: Tensor, width: int, heads: int, *weights: Any, **_: object) -> int:
    """nn.TransformerEncoderLayer in one piece, without gradients: attention and two dense layers."""
    dense: int = weights[11].numel() + weights[13].numel()  # behind those of attention and of the two norms
    return inference_attention_flops(x, x, x, width, heads) + 2 * sum(_lengths(x)) * dense


def _lengths(sequences: Tensor) -> list[int]:
    """The length of each sequence of a batch (B x L x E); a nested tensor holds different ones."""
    if sequences.is_nested:
        return [len(sequence) for sequence in sequences.unbind()]
    return [sequences.shape[1]] * sequences.shape[0]


def complex_transform_flops(x: Tensor, axes: Sequence[int], *_: object, **__: object) -> int:
    """5 N log₂ N for each complex transform of N points: the convention, whatever the algorithm."""
    return round(5 * x.numel() * log2(prod(x.shape[axis] for axis in axes)))


def real_transform_flops(x: Tensor, axes: Sequence[int], *_: object, **__: object) -> int:
    """Real numbers to complex ones: half of a complex transform."""
    return complex_transform_flops(x, axes) // 2


def inverse_real_transform_flops(_: Tensor, axes: Sequence[int], *__: object, out_val: Tensor, **___: object) -> int:
    """Complex numbers to real ones, of which the result holds N: half of a complex transform."""
    return complex_transform_flops(out_val, axes) // 2


def lstm_flops(x: Tensor, input_weight: Tensor, hidden_weight: Tensor, *_: object, **__: object) -> int:
    """One layer and direction (T x B x C): the gates see the input and the hidden state at each step."""
    return 2 * x.shape[0] * x.shape[1] * (input_weight.numel() + hidden_weight.numel())


def lstm_backward_flops(x: Tensor, input_weight: Tensor, hidden_weight: Tensor, *_: object, **__: object) -> int:
    """Twice the forward: the fused kernel gives all gradients, that of the input too, asked for or not."""
    return 2 * lstm_flops(x, input_weight, hidden_weight)


RULES: dict[Any, Callable[..., int]] = {
    aten.mm: product_flops,
    aten.bmm: product_flops,
    aten.mv: product_flops,
    aten.dot: product_flops,
    aten.vdot: product_flops,
    aten.addmm: added_product_flops,
    aten.baddbmm: added_product_flops,
    aten.addbmm: added_product_flops,
    aten.addmv: added_product_flops,
    aten.convolution_backward: convolution_backward_flops,
    aten._scaled_dot_product_flash_attention_for_cpu: attention_flops,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward_flops,
    aten._native_multi_head_attention: inference_attention_flops,
    aten._transformer_encoder_layer_fwd: inference_layer_flops,
    aten._fft_c2c: complex_transform_flops,
    aten._fft_r2c: real_transform_flops,
    aten._fft_c2r: inverse_real_transform_flops,
    aten.mkldnn_rnn_layer: lstm_flops,
    aten.mkldnn_rnn_layer_backward: lstm_backward_flops,
}
for _rule in RULES.values():
    _rule._get_raw = True  # type: ignore[attr-defined]  # torch then hands over tensors, not only their shapes
