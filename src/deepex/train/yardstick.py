"""What a step asks of the processor, and what the processor can do: measured once, before the first step."""

from dataclasses import dataclass

import torch

from deepex.record.flops import count_flops, measure_gemm_peak
from deepex.sample import Batch
from deepex.train.precision import DTYPES, advise
from deepex.train.step import Step, unfit


@dataclass(frozen=True, kw_only=True)
class Yardstick:
    """Floating-point operations of a step of one rank, and the best rates of a matrix product, a second.

    `gemm_flops_per_second` is in the precision of the run, `fp32_flops_per_second` beside it. `advice` is a warning for
    people where the precision costs time instead of saving it.
    """

    flops_per_step: int
    gemm_flops_per_second: float
    fp32_flops_per_second: float
    advice: str = ""


def measure_yardstick(step: Step, batch: Batch) -> Yardstick:
    """Count a forward and backward on a real batch, and leave the replica as it was."""
    replica, device = step.replica, step.replica.block.device
    before = replica.block.clone()
    replica.model.train()
    flops = count_flops(lambda: try_step(step, batch))
    replica.check_gradients()
    replica.block.copy_(before)
    replica.gradients.zero_()
    fp32 = measure_gemm_peak(device)
    own = fp32 if step.precision == "fp32" else measure_gemm_peak(device, DTYPES[step.precision])
    return Yardstick(
        flops_per_step=flops,
        gemm_flops_per_second=own,
        fp32_flops_per_second=fp32,
        advice=advise(step.precision, own, fp32),
    )


def try_step(step: Step, batch: Batch) -> None:
    """A first forward and backward: data that the model can't take is told here, before anything was trained."""
    try:
        step.backward(step.forward(batch))
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, TypeError) as error:
        raise unfit(batch, error) from error
