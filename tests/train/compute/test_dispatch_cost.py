"""Operators are counted beside floating-point operations, and what one costs is measured without a trace."""

import timeit
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from deepex.record.flops import count_flops
from deepex.sample import Batch
from deepex.train.compute.dispatch_cost import OperatorCount, measure_dispatch, measure_operator_seconds


def test_forward_and_backward_count_and_flops_stay_what_they_are() -> None:
    model, samples = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.rand(2, 4)

    def step() -> None:
        model(samples).sum().backward()

    step()
    with OperatorCount() as forward:
        model(samples)
    with OperatorCount() as operators:
        flops = count_flops(step)
    assert flops == count_flops(step)
    assert operators.total > forward.total > 2


def test_a_longer_step_counts_more() -> None:
    counts = []
    for length in (1, 10):
        with OperatorCount() as operators:
            nn.Sequential(*(nn.ReLU() for _ in range(length)))(torch.rand(2))
        counts.append(operators.total)
    assert counts[1] - counts[0] == 9


def test_measuring_takes_microseconds_an_operator_and_leaves_the_noise_alone() -> None:
    before = torch.get_rng_state()
    seconds = measure_operator_seconds(torch.device("cpu"))
    assert 1e-7 < seconds < 1e-3
    assert torch.equal(torch.get_rng_state(), before)


def step_of(model: nn.Module) -> Callable[[Batch], None]:
    def train(batch: Batch) -> None:
        model(batch["x"]).square().mean().backward()

    return train


def test_a_tiny_step_is_nearly_all_dispatch_and_a_large_one_hardly() -> None:
    torch.set_num_threads(1)
    seconds = {}
    for width, batch in ((8, {"x": torch.rand(64, 8)}), (512, {"x": torch.rand(256, 512)})):
        train = partial(step_of(nn.Sequential(*(nn.Linear(width, width) for _ in range(6)))), batch)
        train()
        fixed = measure_dispatch(train.func, batch, operators=60, flops=10**6)
        seconds[width] = fixed / min(timeit.repeat(train, number=1, repeat=9))
    assert seconds[8] > 0.4
    assert seconds[512] < seconds[8] / 2


def test_a_loss_that_needs_whole_batches_is_told_by_its_operators() -> None:
    calls = []

    def train(batch: Batch) -> None:
        calls.append(len(batch["x"]))
        batch["x"].reshape(32, 2)

    assert measure_dispatch(train, {"x": torch.rand(64)}, operators=100, flops=10**6) > 0
    assert calls == [2]
    assert measure_dispatch(train, {"x": torch.rand(64)}, operators=100, flops=10**10) > 0
    assert calls == [2]
