"""How fast this processor multiplies matrices and copies memory, with one thread and with all cores."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from time import perf_counter

import torch

from deepex.doctor.machine import CopyRate, GemmRate, rounded
from deepex.record.flops import measure_gemm_peak

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
CPU = torch.device("cpu")
PROBE_SIZE = 256
GEMM_SIZES = (512, 1024, 2048)
PRODUCT_SECONDS = 0.3  # the longest product: without instructions for it, bf16 runs at a hundredth of fp32
REPEATS = 7
BUDGET_SECONDS = 1.5  # for each figure; three repeats at least
LEAST_COPY_BYTES, MOST_COPY_BYTES = 128 * 10**6, 1024 * 10**6


def measure_gemm(dtype: str, thread_counts: tuple[int, ...]) -> tuple[GemmRate, ...]:
    """Rates of the product of two square matrices, of one size for all numbers of threads."""
    with _threads(1):
        rate = measure_gemm_peak(CPU, DTYPES[dtype], size=PROBE_SIZE, repeats=2)
    fitting = [size for size in GEMM_SIZES if 2 * size**3 / rate < PRODUCT_SECONDS]
    size = max(fitting, default=PROBE_SIZE)
    rates = []
    for threads in thread_counts:
        with _threads(threads):
            rows = _repeat(lambda: measure_gemm_peak(CPU, DTYPES[dtype], size=size, repeats=2) / 1e9)
        figures = {"best_gflops": rounded(max(rows)), "median_gflops": rounded(median(rows))}
        rates.append(GemmRate(dtype=dtype, threads=threads, size=size, repeats=len(rows), **figures))
    return tuple(rates)


def measure_copy(thread_counts: tuple[int, ...], *, cache_bytes: int, available_bytes: float) -> tuple[CopyRate, ...]:
    """Rates of a copy between two blocks too large for the cache, bytes read plus bytes written."""
    num_bytes = min(max(LEAST_COPY_BYTES, 4 * cache_bytes), MOST_COPY_BYTES, int(available_bytes / 8))
    source, target = torch.ones(num_bytes, dtype=torch.uint8), torch.zeros(num_bytes, dtype=torch.uint8)

    def copy() -> float:
        start = perf_counter()
        target.copy_(source)
        return 2 * num_bytes / (perf_counter() - start) / 1e9

    rates = []
    for threads in thread_counts:
        with _threads(threads):
            rows = _repeat(copy)
        figures = {"best_gb_per_second": rounded(max(rows)), "median_gb_per_second": rounded(median(rows))}
        rates.append(CopyRate(threads=threads, megabytes=num_bytes // 10**6, **figures))
    return tuple(rates)


def _repeat(measure: Callable[[], float]) -> list[float]:
    """Several measurements, fewer of slow ones."""
    start, rows = perf_counter(), [measure()]
    while len(rows) < 3 or (len(rows) < REPEATS and perf_counter() - start < BUDGET_SECONDS):
        rows.append(measure())
    return rows


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Torch with this many threads, for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
