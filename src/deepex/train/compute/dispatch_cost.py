"""What the framework takes of a step whatever its batch: starting operators, and setting up their kernels.

It knows neither the task nor the machine's rates. On a GPU, where operators start while others run, it says little.
"""

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from deepex.errors import DeepexError
from deepex.record.flops import spare_compiler
from deepex.sample import Batch

PAIRS, WIDTH = 6, 8  # a short chain: on a busy core it is seldom interrupted
FEW = 2  # samples of a small step; batch-norm needs more than one
TIMES, STEP_TIMES = 40, 7
LARGE_STEP = 2_000_000_000  # FLOP; beyond, starting operators is a small part, and a rough figure is enough
MOST_TIMES = 3  # an operator may cost so many times that of the chain; beyond, a small step reads many weights


@spare_compiler
class OperatorCount(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves the mode untyped
    """Counts the operators that run inside its `with` block, in the forward and in the backward.

    Views count too: they compute nothing and cost a start all the same.

    >>> with OperatorCount() as operators:
    ...     _ = torch.ones(3).neg().abs()
    >>> operators.total
    3
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.total: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.total += 1
        return func(*args, **(kwargs or {}))


def measure_dispatch(train: Callable[[Batch], object], batch: Batch, *, operators: int, flops: int) -> float:
    """Seconds that a step takes whatever its batch.

    t(b) = t0 + b t1 through the times of two samples and of the batch gives t0. For an MLP of 4,481 weights that is
    0.90 of a step, for small convolutions 0.24, for a transformer layer 0.20; counting operators alone says 0.67, 0.11
    and 0.30. A large step, and one that does not take two samples, is told by its operators.

    Arguments:
        train: a forward and backward.
        batch: of the run.
        operators, flops: of a step.
    """
    usual = operators * measure_operator_seconds(next(iter(batch.values())).device)
    fixed = _extrapolate(train, batch) if flops < LARGE_STEP else None
    return usual if fixed is None else min(fixed, MOST_TIMES * usual)


def measure_operator_seconds(device: torch.device) -> float:
    """What one operator costs that has next to nothing to compute, with its module, its gradient and all.

    The mean over a chain of dense layers of 8 units and activations, forward and backward, at the best of a few times:
    on busy cores threads wait for each other a hundred times longer, and that is not the framework. About 50 ms.
    """
    layers = (layer for _ in range(PAIRS) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU()))
    with torch.random.fork_rng(devices=[]):  # the run's own noise stays what it would be
        chain = nn.Sequential(*layers).to(device)
    samples = torch.ones(FEW, WIDTH, device=device)

    def train() -> None:
        chain(samples).sum().backward()

    with OperatorCount() as operators:
        train()
    return min(_time(train, samples) for _ in range(TIMES)) / int(operators.total)


def _extrapolate(train: Callable[[Batch], object], batch: Batch) -> float | None:
    """A step's time at no samples, by the line through two and all; None if it can't be told."""
    first = next(iter(batch.values()))
    size, few = len(first), {name: tensor[:FEW] for name, tensor in batch.items()}
    if size < 4 * FEW:
        return None
    try:
        train(few)
    except (DeepexError, RuntimeError, ValueError, TypeError, IndexError):
        return None  # a loss that needs whole batches
    # By turns, so that what else the machine does slows both.
    times = [(_time(lambda: train(few), first), _time(lambda: train(batch), first)) for _ in range(STEP_TIMES)]
    short, long = (median(each) for each in zip(*times, strict=True))
    return float(min(short, max(0.0, short - FEW * (long - short) / (size - FEW))))


def _time(run: Callable[[], object], on: Tensor) -> float:
    start = perf_counter()
    run()
    if on.is_cuda:
        torch.cuda.synchronize(on.device)
    return perf_counter() - start
