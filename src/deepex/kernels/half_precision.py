"""Sixteen-bit arithmetic on processors without instructions for it.

There torch computes bf16 and fp16 products a hundred times slower than fp32 ones. What such instructions do is exact
products of 16-bit numbers, added up in fp32 and rounded at the end; so operands are widened, multiplied by the fp32
kernels, and the result is rounded. The numbers are those of 16 bits, the speed is nearly that of fp32.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from deepex.kernels.override import Kernel, override

OPERATORS = (
    "mm",
    "addmm",
    "bmm",
    "baddbmm",
    "convolution",
    "convolution_backward",
    "mkldnn_rnn_layer",  # an LSTM: torch's own does not work in 16 bits on such a processor
    "mkldnn_rnn_layer_backward",
)
NARROW = (torch.bfloat16, torch.float16)


def install_half_precision() -> bool:
    """Take the place of torch's kernels in this process, where the processor can't compute so; whether it does."""
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    for operator in OPERATORS:
        override(operator, __name__, widen)
    return True


def widen(before: Kernel) -> Kernel:
    """An operator whose 16-bit operands are widened and whose results are then rounded; others pass through."""

    def kernel(*operands: Any, **settings: Any) -> Any:
        narrow = next((x.dtype for x in operands if isinstance(x, Tensor) and x.dtype in NARROW), None)
        if narrow is None:
            return before(*operands, **settings)
        wide = (x.float() if isinstance(x, Tensor) and x.dtype == narrow else x for x in operands)
        results = before(*wide, **settings)
        return _pytree.tree_map_only(Tensor, lambda x: x.to(narrow) if x.dtype == torch.float32 else x, results)

    return kernel
