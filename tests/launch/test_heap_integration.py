"""The heap is kept, pages are not faulted in again, and not a bit changes."""

import json
import subprocess

import pytest

from tests.interpreter import PYTHON

PROGRAM = """
import json, resource, sys, tempfile
from dataclasses import replace
from pathlib import Path
import torch
from deepex.data import DataConfig
from deepex.launch.start import start
from deepex.models.cosmoflow import CosmoFlow
from deepex.tasks.own import task
from deepex.train.recipe import Recipe, StopConfig

torch.manual_seed(0)  # activations of 40 MiB: malloc learns to keep up to 32 MiB by itself
faults = []

def error(model, batch):
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
    return torch.nn.functional.mse_loss(model(batch["x"]), batch["y"])

task = task(
    model=lambda: CosmoFlow(shape=(2, 32, 32, 32)),
    data={"x": torch.rand(80, 2, 32, 32, 32), "y": torch.rand(80, 4)},
    loss=error, target=-1.0,
)
recipe = Recipe(task=task, data=DataConfig(batch=10), stop=StopConfig(epochs=1), keep_heap=sys.argv[1] == "keep")
with tempfile.TemporaryDirectory() as folder:
    run = start(recipe, Path(folder) / "run", "quiet")
    print(json.dumps({
        "sha256": run.read_json("summary.json")["weights_sha256"],
        "kept": run.read_json("record.json")["places"][0]["heap_kept"],
        "faults": faults[7] - faults[4],
    }))
"""


def run(choice: str) -> dict[str, object]:
    done = subprocess.run([PYTHON, "-c", PROGRAM, choice], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    told: dict[str, object] = json.loads(done.stdout)
    return told


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[str, object]]:
    return {choice: run(choice) for choice in ("keep", "give back")}


def test_numbers_do_not_change_by_a_bit(outcomes: dict[str, dict[str, object]]) -> None:
    assert outcomes["keep"]["kept"] is True
    assert outcomes["give back"]["kept"] is False
    assert outcomes["keep"]["sha256"] == outcomes["give back"]["sha256"]


def test_memory_is_not_faulted_in_again(outcomes: dict[str, dict[str, object]]) -> None:
    kept, given_back = (outcomes[choice]["faults"] for choice in ("keep", "give back"))
    assert isinstance(kept, int)
    assert isinstance(given_back, int)
    assert kept < given_back / 10
