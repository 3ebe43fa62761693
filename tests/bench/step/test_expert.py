import signal
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from deepex.bench.step.expert import Way, find_fastest, list_ways
from deepex.bench.step.variants import build_expert_step, lay_channels_last
from deepex.bench.step.workloads import WORKLOADS
from deepex.sample import Batch

EAGER, COMPILED = Way(), Way(compiled=True)
pytestmark = pytest.mark.usefixtures("one_thread")  # which puts threads back that a test sets


def count_to(number: int) -> None:
    for _ in range(number):
        pass


def test_convolutions_bring_in_channels_last_and_a_small_step_one_thread() -> None:
    assert len(list_ways(has_convolutions=True, is_small=False)) == 4
    small = list_ways(has_convolutions=False, is_small=True)
    assert [str(way) for way in small] == [
        "contiguous, eager",
        "contiguous, eager, one thread",
        "contiguous, compiled",
        "contiguous, compiled, one thread",
    ]


def test_the_fastest_is_chosen_and_its_threads_are_set() -> None:
    slow, fast = Way(), Way(one_thread=True)
    told: list[str] = []
    choice = find_fastest(
        [fast, slow], lambda way: lambda: count_to(1_000_000 if way == slow else 10), steps=2, tell=told.append
    )
    assert (choice.way, choice.left_out) == (fast, ())
    assert torch.get_num_threads() == 1
    assert told[0] == "trying contiguous, eager, one thread"
    assert "contiguous, eager, one thread is the fastest" in told[-1]


def test_a_way_that_does_not_compile_is_left_out_and_said_so() -> None:
    def fail() -> None:
        raise RuntimeError("no compiler\nand a long story")

    built = {EAGER: lambda: count_to(10), COMPILED: fail}
    choice = find_fastest([EAGER, COMPILED], built.__getitem__, steps=1, tell=lambda text: None)
    assert choice.way == EAGER
    assert choice.left_out == ("contiguous, compiled: does not compile (RuntimeError: no compiler)",)


def test_a_way_that_compiles_for_ever_is_left_out_even_if_the_compiler_rewords_the_limit() -> None:
    def compile_for_ever() -> None:
        try:
            while True:
                count_to(1000)
        except TimeoutError as error:
            raise RuntimeError("the compiler has its own words") from error

    handler = signal.getsignal(signal.SIGALRM)
    built = {EAGER: lambda: count_to(10), COMPILED: compile_for_ever}
    choice = find_fastest([EAGER, COMPILED], built.__getitem__, steps=1, tell=lambda text: None, limit_seconds=0.1)
    assert choice.left_out == ("contiguous, compiled: compiles for over 0.1 s",)
    assert signal.getsignal(signal.SIGALRM) == handler


def test_an_error_of_an_eager_step_is_an_error() -> None:
    def fail() -> None:
        raise RuntimeError("shapes don't fit")

    with pytest.raises(RuntimeError, match="shapes don't fit"):
        find_fastest([EAGER], lambda way: fail, steps=1, tell=lambda text: None)


@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (2, 3, 4, 4, 4)])
def test_channels_are_innermost(shape: tuple[int, ...]) -> None:
    tensor = torch.rand(shape)
    laid = lay_channels_last(tensor)
    assert laid.stride(1) == 1
    assert torch.equal(laid, tensor)
    assert lay_channels_last(torch.rand(2, 3)).is_contiguous()


def test_an_experts_step_trains() -> None:
    workload = WORKLOADS["tiny"]
    seen: list[float] = []

    def watch(model: nn.Module, batch: Batch) -> Tensor:
        loss = workload.loss(model, batch)
        seen.append(float(loss.detach()))
        return loss

    step = build_expert_step(replace(workload, loss=watch), "fp32", Way(channels_last=True))
    for _ in range(50):
        step()
    assert seen[-1] < seen[0]
