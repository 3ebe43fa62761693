"""Recipes on disk: tasks of a user's own by name, and objects that only a script has beside them."""

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from deepex.errors import ConfigError, UsageError
from deepex.launch.recipes import from_code, name_code, read_recipe, wrap_task, write_recipe
from deepex.record.folder import RunFolder
from deepex.tasks.own import OwnTask, task
from deepex.tasks.protein import recipe
from deepex.train.recipe import Recipe

FILES = Path(__file__).parents[1] / "files" / "own"
TASKS = """
from dataclasses import dataclass
from kepler import Kepler
import deepex as dx

small, recipe = Kepler(degree=5), dx.Recipe(task=Kepler(degree=6), seed=4)

def make():
    return Kepler(degree=7)

@dataclass(frozen=True, kw_only=True)
class NeedsMore(Kepler):
    more: int

class NoTarget(Kepler):
    target = None

class Plain:
    name, target = "plain", dx.Target(metric="error")
    data = model = loss = evaluate = None

class Half:
    name = "half"
    def data(self): ...
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    shutil.copy(FILES / "kepler.py", tmp_path)
    (tmp_path / "tasks.py").write_text(TASKS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("kepler", None)  # imported by the file that stands beside it


def again(recipe: Recipe, folder: Path) -> Recipe:
    folder.mkdir()
    write_recipe(RunFolder(folder), recipe)
    return read_recipe(folder / "recipe.toml")


@pytest.mark.parametrize(("name", "degree"), [("small", 5), ("recipe", 6), ("make", 7), ("Kepler", 2)])
def test_a_name_leads_to_a_task_a_recipe_or_what_makes_one_and_comes_back(home: Path, name: str, degree: int) -> None:
    found = from_code(f"tasks.py:{name}")
    assert found.code == f"{home}/tasks.py:{name}"
    assert found.seed == (4 if name == "recipe" else 0)
    same = again(found, home / "run")
    assert same == found
    assert getattr(same.task, "degree", None) == degree
    changed: Any = replace(found, task=replace(found.task, degree=9))  # type: ignore[type-var]  # a dataclass
    assert getattr(again(changed, home / "other").task, "degree", None) == 9


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NeedsMore", "can't be called without arguments: .*'more'.* or a class or function that makes one"),
        ("NoTarget", "target of task NoTarget is a NoneType. Allowed: dx.Target"),
        ("Plain", "task Plain is no dataclass. Write @dataclass"),
        ("Half", "is a Half, which is no task: it has no target, model, loss, evaluate"),
        ("TASKS", "unknown name 'TASKS'"),
    ],
)
@pytest.mark.usefixtures("home")
def test_what_is_no_task_is_told_with_what_is_missing(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        from_code(f"tasks.py:{name}")


def test_a_task_of_functions_travels_beside_its_recipe(line: OwnTask, tmp_path: Path) -> None:
    found = again(Recipe(task=line), tmp_path / "run")
    assert found.code == "objects.pkl:task"
    assert isinstance(found.task, OwnTask)
    assert torch.equal(found.task.samples["x"], line.samples["x"])
    (tmp_path / "run/objects.pkl").unlink()
    with pytest.raises(
        ConfigError, match=r"objects\.pkl can't be read: No such file .*start the run again from the scr"
    ):
        read_recipe(tmp_path / "run/recipe.toml")


def test_a_task_of_the_table_needs_no_name_and_a_loader_gives_its_batch_size() -> None:
    assert name_code(recipe()).code == ""
    data = torch.utils.data.TensorDataset(torch.zeros(90, 2))
    loader: Any = torch.utils.data.DataLoader(data, batch_size=9)
    own = task(model=lambda: nn.Linear(2, 1), data=loader, loss=lambda model, batch: model(batch[0]).mean())
    assert wrap_task(own).data.batch == 9


def test_recipes_of_loops_and_of_nothing_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    for text, said in (
        (
            'code = "loop.py"\n[task]\nname = "own"\n',
            r"is of a run whose loop stands in loop\.py\. Run that script again",
        ),
        ("seed = 1\n", "does not name its task"),
        ('code = "no.py:Kepler"\n[task]\nname = "kepler"\n', "there is no file"),
    ):
        file.write_text(text)
        with pytest.raises(UsageError, match=said):
            read_recipe(file)
