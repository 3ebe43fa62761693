"""What tests share: small real tasks, and the command line as a user calls it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from deepex.sample import Batch
from deepex.tasks.arrays import ArrayTask
from deepex.train.recipe import Recipe

Command = Callable[..., subprocess.CompletedProcess[str]]


def _squared_error(model: nn.Module, batch: Batch) -> Tensor:
    error: Tensor = model(batch["x"]) - batch["y"]
    return error.square().mean()


@pytest.fixture
def line() -> ArrayTask:
    """A plane through noisy points: learned in a second, and only by learning."""
    noise = torch.Generator().manual_seed(0)
    x = torch.randn(600, 4, generator=noise)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5], [3.0]]) + 0.1 * torch.randn(600, 1, generator=noise)
    return ArrayTask(
        name="line",
        network=lambda: nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1)),
        arrays={"x": x, "y": y},
        objective=_squared_error,
        threshold=0.5,
    )


@pytest.fixture
def line_recipe(line: ArrayTask) -> Recipe:
    return Recipe(task=line)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As a rank of many computes: on one core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def deepex(tmp_path: Path) -> Command:
    """Call `deepex` in an empty folder, as a user would."""

    def call(*words: str, variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **(variables or {})}
        command = [sys.executable, "-m", "deepex", *words]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)

    return call
