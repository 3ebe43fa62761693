"""Operators are counted beside floating-point operations, and what one costs is measured without a trace."""

import torch
from torch import nn

from deepex.record.flops import count_flops
from deepex.train.overhead import OperatorCount, measure_operator_seconds


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
