"""What README shows is what happens."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import deepex
from deepex.data import ArraySource
from deepex.data.packing.pack import pack

README = Path(deepex.__file__).parents[2] / "README.md"


def test_the_example_with_one_s_own_module_runs_as_printed(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    (tmp_path / "own.py").write_text(example)
    done = subprocess.run([sys.executable, "own.py"], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    value, page = done.stdout.splitlines()[-1].split()
    assert float(value) < 0.001
    assert (tmp_path / page).is_file()


def test_the_example_of_the_page_on_data_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (README.parent / "docs" / "data.md").read_text(), flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    labels = torch.arange(500) % 10
    images = (torch.nn.functional.one_hot(labels, 784) * 255).to(torch.uint8).reshape(500, 28, 28)
    pack(ArraySource({"image": images, "label": labels}), Path("digits.h5"))
    names: dict[str, Any] = {}
    exec(example, names)  # noqa: S102  # our own page
    run = deepex.run(names["task"], out="run", verbosity="quiet", settings={"stop.epochs": 2, "data.batch": 50})
    assert run.metrics[1]["value"] < run.metrics[0]["value"]


def test_the_first_screen_names_the_two_commands() -> None:
    first_screen = README.read_text()[:1000]
    assert "make train" in first_screen
    assert "make test" in first_screen
