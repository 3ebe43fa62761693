"""What tests share: small real tasks, and the command line as a user calls it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import mkdtemp

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that wait leave their core to tests beside them

import pytest
import torch
from torch import Tensor, nn

from deepex.sample import Batch
from deepex.tasks.own import OwnTask, task
from deepex.train.recipe import Recipe
from tests.chains import write_chains
from tests.interpreter import PYTHON

collect_ignore_glob = ["files/*"]  # what tests take, and a user would have
Command = Callable[..., subprocess.CompletedProcess[str]]
STAND_IN = "DEEPEX_TEST_PYTHON"


def pytest_configure(config: pytest.Config) -> None:
    """Start the server of tests/interpreter, once for all workers; its client takes the interpreter's place."""
    if not hasattr(config, "workerinput"):
        folder = Path(mkdtemp(prefix="deepex-tests-"))
        client, server = (Path(__file__).parent / "interpreter" / name for name in ("client.py", "server.py"))
        stand_in, address = folder / "python", folder / "socket"
        stand_in.write_text(f'#!/bin/sh\nexec {PYTHON} -I -S {client} {PYTHON} {address} "$@"\n')
        stand_in.chmod(0o755)
        process = subprocess.Popen([PYTHON, server, address, stand_in], stdin=subprocess.PIPE)
        config.add_cleanup(lambda: _end(process, folder))
        os.environ[STAND_IN] = str(stand_in)
    sys.executable = os.environ[STAND_IN]


def _end(server: "subprocess.Popen[bytes]", folder: Path) -> None:
    server.kill()
    server.communicate()
    shutil.rmtree(folder)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start processes go first: a long one that begins last would leave the other workers idle."""
    items.sort(key=lambda item: "_integration" not in item.path.name)


def _squared_error(model: nn.Module, batch: Batch) -> Tensor:
    error: Tensor = model(batch["x"]) - batch["y"]
    return error.square().mean()


@pytest.fixture
def line() -> OwnTask:
    """A plane through noisy points: learned in a second, and only by learning."""
    noise = torch.Generator().manual_seed(0)
    x = torch.randn(600, 4, generator=noise)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5], [3.0]]) + 0.1 * torch.randn(600, 1, generator=noise)
    return task(
        name="line",
        model=lambda: nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1)),
        data={"x": x, "y": y},
        loss=_squared_error,
        target=0.5,
    )


@pytest.fixture
def line_recipe(line: OwnTask) -> Recipe:
    return Recipe(task=line)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As a rank of many computes: on one core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Makes a real file system of so many bytes; that needs root, as in the containers that tests run in."""
    disk = tmp_path / "disk"

    def mount(num_bytes: int) -> Path:
        disk.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={num_bytes}", "tmpfs", str(disk)]
        subprocess.run(command, check=True, timeout=20)
        return disk

    yield mount
    if disk.exists():
        subprocess.run(["umount", str(disk)], check=True, timeout=20)


@pytest.fixture(scope="session")
def chains(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small data set of the protein task."""
    path = tmp_path_factory.mktemp("chains") / "chains.h5"
    write_chains(path)
    return path


@pytest.fixture
def deepex(tmp_path: Path) -> Command:
    """Call `deepex` in an empty folder, as a user would."""

    def call(*words: str, variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        command, environment = [sys.executable, "-m", "deepex", *words], {**os.environ, **(variables or {})}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)

    return call
