"""Code of a user's own in the ranks of a run: found where the starting process finds it, or told."""

import shutil
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import deepex as dx
from deepex.errors import ConfigError

FILES = Path(__file__).parent / "files" / "own"
SHORT: dict[str, Any] = {"epochs": 1, "batch_size": 8, "ranks": 2, "verbosity": "quiet", "page": False}


@pytest.fixture
def kepler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module in a folder that only this process's own search path has, under a name that no other test uses."""
    (tmp_path / "library").mkdir()
    shutil.copy(FILES / "kepler.py", tmp_path / "library/orbits.py")
    monkeypatch.syspath_prepend(tmp_path / "library")
    monkeypatch.chdir(tmp_path)
    yield import_module("orbits")
    del sys.modules["orbits"]


def test_a_module_on_the_search_path_of_this_process_is_found_by_its_ranks(kepler: Any, tmp_path: Path) -> None:
    run = dx.run(kepler.Kepler(degree=3), **SHORT, out="run")
    assert 'code = "orbits:Kepler"' in (tmp_path / "run/recipe.toml").read_text()
    assert not (tmp_path / "run/objects.pkl").exists()
    assert run.summary.ranks == 2
    (tmp_path / "library/orbits.py").unlink()
    with pytest.raises(ConfigError, match=r"'orbits:Kepler': there is no module 'orbits'.* PYTHONPATH"):
        dx.run(kepler.Kepler(degree=3), **SHORT, out="vanished")


def test_two_functions_without_a_name_are_two_in_the_ranks(kepler: Any) -> None:
    slow, fast = (
        dx.build_recipe(kepler.Kepler(), optimizer=make, sync="local:4")
        for make in (
            lambda parameters: torch.optim.SGD(parameters, lr=1e-9),
            lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        )
    )
    weights = [dx.run(recipe, **SHORT, out=name).state_dict()["bias"] for recipe, name in ((slow, "a"), (fast, "b"))]
    fresh = kepler.Kepler()
    torch.manual_seed(0)
    start = fresh.model().bias.detach()
    assert abs(weights[0] - start) < 1e-5 < abs(weights[1] - start)


class Locked(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(2)


def test_what_can_not_be_sent_to_ranks_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        dx.run(
            model=lambda: nn.Linear(2, 1), data=Locked(), loss=lambda model, batch: model(batch).mean(), **SHORT,
            out=tmp_path / "run",
        )  # fmt: skip
    assert "'samples' of task can't be sent to the run's own processes: TypeError: cannot pickle" in str(raised.value)
    assert "Put it into a file of its own and give a function of that file that makes it" in str(raised.value)
    assert not (tmp_path / "run").exists()
