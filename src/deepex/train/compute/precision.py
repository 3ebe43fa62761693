"""Precision: the numbers that a step computes with. Weights, gradients and the optimiser's state are always fp32.

`bf16` and `fp16` are torch's autocast: matrix products and convolutions in 16 bits, what is delicate in fp32. fp16 has
few exponents, so its loss is scaled up before backward and the gradients down after it.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor

Precision = Literal["fp32", "bf16", "fp16"]

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
WORTHWHILE = 1.2  # how much faster 16 bits must multiply matrices for a run to gain


def resolve_precision(asked: Precision, device: torch.device) -> Precision:
    """What a device computes with when asked: fp16 stands in for bf16 on a GPU that lacks it."""
    if asked == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return "fp16"
    return asked


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """What a forward stands in; it can be entered again and again."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, DTYPES[precision])


def has_instructions(precision: Precision, device: torch.device) -> bool:
    """Whether a device computes so by itself; a processor without such instructions does it through fp32."""
    if precision == "fp32" or device.type != "cpu":
        return True
    mkldnn = torch.ops.mkldnn
    known = mkldnn._is_mkldnn_bf16_supported if precision == "bf16" else mkldnn._is_mkldnn_fp16_supported
    return bool(known())


def advise(precision: Precision, ratio: float, *, instructions: bool) -> str:
    """A warning in words where 16 bits cost time instead of saving it; else nothing.

    Arguments:
        ratio: the measured rate of matrix products over that in fp32.
        instructions: whether the device has any for this precision.

    >>> advise("bf16", 2.0, instructions=True)
    ''
    >>> advise("bf16", 0.95, instructions=False)[:61]
    'warning: bf16 matrix products run at 0.95 times the fp32 rate'
    """
    if precision == "fp32" or (instructions and ratio >= WORTHWHILE):
        return ""
    reason = "" if instructions else ", which has no instructions for them"
    return (
        f"warning: {precision} matrix products run at {ratio:.2f} times the fp32 rate on this processor{reason}. "
        f"This run goes on in {precision}; --precision fp32 is likely faster."
    )


class LossScale:
    """Dynamic loss scaling for fp16: halve after an overflow and drop that step, double after many without one.

    The gradient is looked at after replicas have mixed it: an overflow on one rank is then one on all, and all drop
    the same step.

    Attributes:
        state: the scale, and the steps since it last changed; saved with a checkpoint.

    Reference: Micikevicius et al., Mixed precision training, ICLR 2018.
    """

    FIRST, LEAST, GROWTH_STEPS = 2.0**16, 1.0, 2000

    def __init__(self, precision: Precision) -> None:
        self.active = precision == "fp16"
        self.state = {"scale": self.FIRST if self.active else 1.0, "steps": 0.0}

    def scale(self, loss: Tensor) -> Tensor:
        """What backward starts from."""
        return loss * self.state["scale"] if self.active else loss

    def unscale(self, gradients: Tensor) -> bool:
        """Undo the scale in place; whether the step counts."""
        if not self.active:
            return True
        gradients.div_(self.state["scale"])
        finite = bool(torch.isfinite(torch.stack(torch.aminmax(gradients))).all())  # a norm takes 30 times as long
        self.state["steps"] += 1
        if not finite:
            self.state = {"scale": max(self.LEAST, self.state["scale"] / 2), "steps": 0.0}
        elif self.state["steps"] == self.GROWTH_STEPS:
            self.state = {"scale": self.state["scale"] * 2, "steps": 0.0}
        return finite
