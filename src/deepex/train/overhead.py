"""What the framework takes of a step whatever its batch: how many operators it starts, and what starting one costs.

It knows neither the task nor the machine's rates. On a GPU, where operators start while others run, it says little.
"""

from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

PAIRS, WIDTH, SAMPLES = 6, 8, 2  # short: on a busy core the best of many short times is seldom interrupted
TIMES = 40


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


def measure_operator_seconds(device: torch.device) -> float:
    """What one operator costs that has next to nothing to compute, with its module, its gradient and all.

    The mean over a chain of dense layers of 8 units and activations, forward and backward, at the best of a few times;
    about 50 ms. An operator on one element alone (3 µs, where the chain takes 8) misses what matrix products set up: a
    step of an MLP of 4,481 weights on one sample starts 52 operators and takes 8.7 µs for each, a transformer layer
    6.0, convolutions with batch-norm 10.4.
    """
    layers = (layer for _ in range(PAIRS) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU()))
    with torch.random.fork_rng(devices=[]):  # the run's own noise stays what it would be
        chain = nn.Sequential(*layers).to(device)
    samples = torch.ones(SAMPLES, WIDTH, device=device)
    with OperatorCount() as operators:
        _train(chain, samples)
    seconds: list[float] = []
    for _ in range(TIMES):
        start = perf_counter()
        _train(chain, samples)
        seconds.append(perf_counter() - start)
    return min(seconds) / int(operators.total)


def _train(model: nn.Module, samples: torch.Tensor) -> None:
    model(samples).sum().backward()
    if samples.is_cuda:
        torch.cuda.synchronize(samples.device)
