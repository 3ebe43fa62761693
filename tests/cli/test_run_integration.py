"""Runs of several ranks as a user meets them: every strategy learns, repeats, stops and goes on."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from deepex import api
from deepex.launch.recipes import write_recipe
from deepex.record.folder import RunFolder
from deepex.sample import Batch
from deepex.tasks.own import OwnTask, task
from deepex.train.recipe import Recipe
from tests.conftest import Command
from tests.interpreter import PYTHON

SLOW = "DEEPEX_TEST_SLOW"


def test_protein_reaches_its_target(deepex: Command, tmp_path: Path) -> None:
    done = deepex("run", "protein", "--ranks", "2", "--sync", "local:8", "--out", "run")
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["target_reached"]
    assert summary["value"] < summary["target"]
    step = [summary["phase_seconds"][name] for name in ("input", "forward", "backward", "update", "sync")]
    assert abs(sum(step) / summary["step_wall_seconds"] - 1) < 0.02
    assert summary["findings"]["native_fraction_r2"] > 0.6
    assert len(list((tmp_path / "run" / "phases").iterdir())) == 2
    assert summary["fabric"] == "shared"
    assert summary["diagnosis"]["verdict"] in done.stdout.replace("\n", " ")


@pytest.fixture
def own_task() -> OwnTask:
    """A task whose steps take long where a variable asks for it, so that a signal finds ranks at work."""

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        if model.training and SLOW in os.environ:
            threading.Event().wait(0.02)
        return nn.functional.mse_loss(model(batch["x"]), batch["y"])

    x = torch.randn(2000, 4, generator=torch.Generator().manual_seed(0))
    return task(
        model=lambda: nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1)),
        data={"x": x, "y": x.sum(dim=1, keepdim=True)},
        loss=loss,
        target=0.0,
    )


@pytest.mark.parametrize("sync", ["local:epoch", "allreduce"])
def test_two_runs_of_two_ranks_are_equal_also_when_one_is_stopped_and_resumed(
    deepex: Command, tmp_path: Path, own_task: OwnTask, sync: str
) -> None:
    write_recipe(RunFolder.create(tmp_path / "own"), Recipe(task=own_task))
    words = ["run", "own/recipe.toml", "--ranks", "2", "--sync", sync, "--until", "0", "--no-page"]
    words += ["data.batch=16", "stop.epochs=20"]
    whole = deepex(*words, "--out", "whole")
    assert whole.returncode == 0, whole.stderr
    command = [sys.executable, "-m", "deepex", *words, "--out", "parts"]
    pipe, slow = subprocess.PIPE, {**os.environ, SLOW: "1"}
    with subprocess.Popen(command, cwd=tmp_path, env=slow, stdout=pipe, stderr=pipe, text=True) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        assert "computing in fp32" in run.stdout.readline()
        assert "epoch   1/20" in run.stdout.readline()
        run.send_signal(signal.SIGINT)
        assert run.wait(timeout=100) == 75
        said = run.stderr.read()
    assert "deepex resume parts" in said
    assert "Traceback" not in said
    assert not (tmp_path / "parts" / "summary.json").exists()
    resumed = deepex("resume", "parts", "--no-page")
    assert resumed.returncode == 0, resumed.stderr
    hashes = [json.loads((tmp_path / run / "summary.json").read_text())["weights_sha256"] for run in ("whole", "parts")]
    assert hashes[0] == hashes[1]


def test_a_signal_after_the_last_step_lets_the_run_complete(tmp_path: Path, chains: Path) -> None:
    command = [sys.executable, "-m", "deepex", "run", "protein", "--ranks", "2", "--until", "0", "--out", "run"]
    command += ["--no-page", f"task.file={chains}", "data.batch=16", "stop.epochs=1"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as run:
        while not (tmp_path / "run" / "summary.json").exists():
            with suppress(subprocess.TimeoutExpired):
                pytest.fail(f"it ended with {run.wait(0.01)} before it was complete")
        run.send_signal(signal.SIGINT)  # now it illustrates its model
        assert run.wait(timeout=100) == 0
        assert run.stderr is not None
        assert run.stderr.read() == ""
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["findings"]


def test_a_killed_rank_ends_the_run_with_its_name(tmp_path: Path) -> None:
    command = [PYTHON, "-m", "deepex", "run", "protein", "--ranks", "2", "--until", "0", "--out", "run"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.readline()
        found = subprocess.run(["pgrep", "-P", str(run.pid)], capture_output=True, text=True, check=True, timeout=20)
        ranks = {int(pid): Path(f"/proc/{pid}/environ").read_text() for pid in found.stdout.split()}
        os.kill(next(pid for pid, environment in ranks.items() if "\0RANK=1\0" in environment), signal.SIGKILL)
        assert run.wait(timeout=100) == 1
        said = run.stderr.read()
    assert "rank 1 was killed by SIGKILL" in said
    assert "Traceback" not in said


def test_a_mistake_in_a_user_s_own_model_is_shown_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "import deepex as dx, torch\n"
        "from torch import nn\n"
        "task = dx.task(model=lambda: nn.Linear(3, 1), data={'x': torch.zeros(500, 2)}, target=0.0,\n"
        "    loss=lambda model, batch: model(batch['x']).mean())\n"
        "dx.run(task, ranks=2, out='run')\n"
    )
    done = subprocess.run([sys.executable, "own.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1
    assert "the model can't take this batch (x: float32 of shape (64, 2), 0 to 0)" in done.stderr
    assert "own.py, line 4: mat1 and mat2 shapes cannot be multiplied (64x2 and 3x1)" in done.stderr


def test_a_run_in_python_leaves_signals_as_they_were(tmp_path: Path, own_task: OwnTask) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    before = [signal.getsignal(number) for number in numbers]
    settings = {"stop.epochs": 1, "data.batch": 100}
    api.run(own_task, ranks=2, out=tmp_path / "run", verbosity="quiet", page=False, settings=settings)
    assert [signal.getsignal(number) for number in numbers] == before


def test_a_script_whose_run_is_stopped_ends_with_75_and_a_word_on_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, signal, torch\n"
        "from torch import nn\n"
        "import deepex as dx\n"
        "calls = 0\n"
        "def loss(model, batch):\n"
        "    global calls\n"
        "    calls += 1\n"
        "    if calls == 60:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return model(batch).square().mean()\n"
        "dx.run(model=lambda: nn.Linear(2, 1), data=torch.rand(400, 2), loss=loss, epochs=99, out='run', page=False)\n"
    )
    done = subprocess.run([PYTHON, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 75, done.stderr
    assert done.stderr.startswith("deepex: stopped in epoch ")
    assert "deepex resume run" in done.stderr
