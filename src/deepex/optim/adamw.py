"""AdamW: Adam with weight decay beside the gradient, so that it is not divided by the gradient's size."""

from typing import ClassVar

import torch

from deepex.optim.adam import Adam, Kernel


class AdamW(Adam):
    """As Adam, with w <- (1 - eta lambda) w before the step.

    Reference: Loshchilov and Hutter, Decoupled weight decay regularization, ICLR 2019.
    """

    kernel: ClassVar[Kernel] = staticmethod(torch._fused_adamw_)
    decouples_decay = True
