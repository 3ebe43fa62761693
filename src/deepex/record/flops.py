"""Floating-point operations of a step, and how fast this processor multiplies matrices: the yardstick beside it."""

from collections.abc import Callable
from time import perf_counter

import torch
from torch.utils.flop_counter import FlopCounterMode


def count_flops(step: Callable[[], object]) -> int:
    """Floating-point operations that `step` performs, two for a multiply-add, by torch's counter."""
    with FlopCounterMode(display=False) as counter:
        step()
    return int(counter.get_total_flops())


def measure_gemm_peak(device: torch.device, *, size: int = 768, repeats: int = 7) -> float:
    """The best rate (FLOP/s) of a square fp32 matrix product with the threads that this rank has."""
    left, right = torch.rand(size, size, device=device), torch.rand(size, size, device=device)
    out = torch.empty_like(left)
    torch.mm(left, right, out=out)
    best = float("inf")
    for _ in range(repeats):
        start = perf_counter()
        torch.mm(left, right, out=out)
        best = min(best, perf_counter() - start)
    return 2 * size**3 / best
