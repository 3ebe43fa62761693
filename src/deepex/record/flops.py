"""Floating-point operations of a step, and how fast this processor multiplies matrices: the step_cost beside it.

Knows neither what a step is for nor how long it takes.
"""

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Self, TypeVar

import torch
from torch.utils.flop_counter import FlopCounterMode, _FlopCounterMode

from deepex.record.flop_rules import RULES

M = TypeVar("M")
BUDGET_SECONDS = 1.0


def spare_compiler(mode: type[M]) -> type[M]:
    """Let a dispatch mode work without torch's compiler, whose import takes every rank seconds and which is not used.

    torch wraps a mode's method in one that asks the compiler to leave it alone, and imports the compiler for that.
    """
    method = getattr(mode.__dict__.get("__torch_dispatch__"), "__wrapped__", None)
    if method is not None:
        method.__dynamo_disable = method
    return mode


spare_compiler(_FlopCounterMode)


class _WholeStep:
    """In place of torch's tracker of modules, whose hooks fail in a step that calls `autograd.grad`, as for forces."""

    parents = frozenset({"Global"})

    def __enter__(self) -> "_WholeStep":
        return self

    def __exit__(self, *error: object) -> None:
        pass


def count_flops(step: Callable[[], object]) -> int:
    """Floating-point operations that `step` performs, two for a multiply-add.

    Matrix products, convolutions, attention, recurrent layers and Fourier transforms count, in the forward and in
    the backward, as the kernels that run do them: a gradient that nobody asked for is not counted unless the kernel
    computes it all the same. Element-wise work does not count.

    >>> count_flops(lambda: torch.ones(7, 30) @ torch.ones(30, 20))
    8400
    """
    with FlopCount() as counter:
        step()
    return counter.total


class FlopCount:
    """Counts floating-point operations inside its `with` block, as `count_flops` does."""

    def __init__(self) -> None:
        self._counter = FlopCounterMode(display=False, custom_mapping=RULES)
        self._counter.mod_tracker = _WholeStep()  # type: ignore[assignment]  # it is only entered, left and asked

    def __enter__(self) -> Self:
        self._counter.__enter__()  # type: ignore[no-untyped-call]  # torch leaves the mode untyped
        return self

    def __exit__(self, *error: object) -> None:
        self._counter.__exit__(*error)  # type: ignore[no-untyped-call]  # as above

    @property
    def total(self) -> int:
        return int(self._counter.get_total_flops())


def measure_gemm_peak(
    device: torch.device, dtype: torch.dtype = torch.float32, *, size: int = 1024, repeats: int = 7
) -> float:
    """The best rate (FLOP/s) of a square matrix product of `dtype` with the threads that this rank has.

    Takes a second or less, two at most: a type for which the processor has no instructions (bf16 on many) can be
    seventy times slower than fp32, and is measured on smaller matrices.
    """
    quarter = max(1, size // 4)
    warm_up = _time_products(quarter, device, dtype)
    next(warm_up)
    if next(warm_up) * (size / quarter) ** 3 > BUDGET_SECONDS:
        size = quarter
    deadline = perf_counter() + BUDGET_SECONDS
    times = _time_products(size, device, dtype)
    best = next(times)
    for _ in range(repeats - 1):
        if perf_counter() > deadline:
            break
        best = min(best, next(times))
    return 2 * size**3 / best


def _time_products(size: int, device: torch.device, dtype: torch.dtype) -> Iterator[float]:
    left, right = torch.rand(2, size, size, device=device, dtype=dtype)
    while True:
        start = perf_counter()
        product = left @ right
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        del product
        yield perf_counter() - start
