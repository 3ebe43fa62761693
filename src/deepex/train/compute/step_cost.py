"""What a step asks of the processor, and what the processor can do: measured once, before the first step."""

import torch

from deepex.record.flops import count_flops, measure_gemm_peak
from deepex.record.rows import StepCost
from deepex.sample import Batch
from deepex.train.compute.dispatch_cost import OperatorCount, measure_dispatch
from deepex.train.compute.precision import DTYPES, advise, has_instructions
from deepex.train.step import Step, unfit

SMALL_STEP = 8_000_000  # FLOP; below, threads wait for each other longer than they help (docs/log.md)


def measure_step_cost(step: Step, batch: Batch) -> tuple[StepCost, list[str]]:
    """Count a forward and backward on a real batch, and leave the replica as it was.

    Beside the cost come sentences for people: what was chosen, and where a precision costs time instead of saving it.
    """
    replica, device, cores = step.replica, step.replica.block.device, torch.get_num_threads()
    before = replica.block.clone()
    loose = {name: tensor.clone() for name, tensor in replica.loose_tensors().items()}
    replica.model.train()
    with OperatorCount() as operators:
        flops = count_flops(lambda: try_step(step, batch))
    replica.check_gradients()
    peak = measure_gemm_peak(device, DTYPES[step.precision])
    ratio = 1.0 if step.precision == "fp32" else peak / measure_gemm_peak(device)
    warning = advise(step.precision, ratio, instructions=has_instructions(step.precision, device))
    advice = [sentence for sentence in (share_out(flops, device), warning) if sentence]
    dispatch = measure_dispatch(lambda some: try_step(step, some), batch, operators=operators.total, flops=flops)
    replica.block.copy_(before)
    for name, tensor in replica.loose_tensors().items():
        tensor.copy_(loose[name])
    replica.gradients.zero_()
    cost = StepCost(
        flops_per_step=flops,
        gemm_flops_per_second=peak,
        cores=cores,
        threads=torch.get_num_threads(),
        dispatch_seconds=dispatch,
    )
    return cost, advice


def share_out(flops: int, device: torch.device) -> str:
    """Leave a step that is too small to share to one thread; by its size, not by a clock, so that bits repeat."""
    if device.type != "cpu" or flops >= SMALL_STEP or torch.get_num_threads() == 1:
        return ""
    torch.set_num_threads(1)
    return f"one thread: a step of {flops / 1e6:.1f} million operations is too small to share"


def try_step(step: Step, batch: Batch) -> None:
    """A first forward and backward: data that the model can't take is told here, before anything was trained."""
    try:
        step.backward(step.forward(batch))
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, TypeError) as error:
        raise unfit(batch, error) from error
