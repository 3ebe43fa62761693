"""The contract of a task holds every task of the table that has data here, and finds what is broken."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepex.tasks.protein import Protein
from deepex.testing.task import check_task

FILES = Path(__file__).parents[1] / "files" / "own"
HEAD = """
import torch
from dataclasses import replace
from torch import nn
from kepler import Kepler
import deepex as dx

numbers = torch.Generator()

def draw(module):
    nn.init.uniform_(module.weight, generator=numbers)
    return module

class Mine(Kepler):
"""
BROKEN = {
    "the content's hash is another": "data = lambda self: replace(super().data(), content_sha256=str(torch.rand(1)))",
    "samples are trained on and validated with: 0": (
        "data = lambda self: replace(super().data(), validation=super().data().train)"
    ),
    "there are no samples to train on": "data = lambda self: replace(super().data(), train=[])",
    "not an nn.Module": "model = lambda self: type('No', (), {'parameters': lambda self: []})()",
    "the same seed gives other weights": "model = lambda self: draw(nn.Linear(2, 1))",
    "model() returns the same module twice": "one = nn.Linear(2, 1); model = lambda self: Mine.one",
    "loss() returned a Tensor, not a Loss": "loss = lambda self, model, batch: super().loss(model, batch).total",
    "and is no scalar": "loss = lambda self, model, batch: dx.Loss(total=model(self._powers(batch)))",
    "the loss of fresh weights is nan": (
        "loss = lambda self, model, batch: dx.Loss(total=model(self._powers(batch)).mean() * float('nan'))"
    ),
    "evaluate() returned a float, not a Tally": "evaluate = lambda self, model, batch: 0.5",
    "the metric of two halves is not that of the whole": (
        "evaluate = lambda self, model, batch: dx.Tally(total=float(len(batch['period'])) ** 2, count=1)"
    ),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    shutil.copy(FILES / "kepler.py", tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("kepler", None)  # imported by the file that stands beside it


def test_tasks_keep_it(home: Path, chains: Path) -> None:
    check_task(f"{home}/kepler.py:Kepler")
    check_task(lambda: Protein(file=str(chains)))


@pytest.mark.parametrize("said", BROKEN)
def test_what_is_broken_is_found(home: Path, said: str) -> None:
    code = BROKEN[said].replace("super()", "super(Mine, self)")
    (home / "broken.py").write_text(f"{HEAD}    {code}\n")
    with pytest.raises(AssertionError) as raised:
        check_task(f"{home}/broken.py:Mine")
    assert said in str(raised.value)
