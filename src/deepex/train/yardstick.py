"""What a step asks of the processor, and what the processor can do: measured once, before the first step."""

from dataclasses import dataclass

from deepex.record.flops import count_flops, measure_gemm_peak
from deepex.replica import Replica
from deepex.sample import Batch
from deepex.train.task import Task


@dataclass(frozen=True, kw_only=True)
class Yardstick:
    """Floating-point operations of a step of one rank, and its best rate for a matrix product, a second."""

    flops_per_step: int
    gemm_flops_per_second: float


def measure_yardstick(task: Task, replica: Replica, batch: Batch) -> Yardstick:
    """Count a forward and backward on a real batch, and leave the replica as it was."""
    before = replica.block.clone()
    replica.model.train()
    flops = count_flops(lambda: task.loss(replica.model, batch).total.backward())  # type: ignore[no-untyped-call]  # torch
    replica.block.copy_(before)
    replica.gradients.zero_()
    return Yardstick(flops_per_step=flops, gemm_flops_per_second=measure_gemm_peak(replica.block.device))
