"""A user's own loop on several ranks: every strategy, stops, failures and the record, in real processes."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import deepex as dx
from deepex.api import report
from deepex.errors import ConfigError, DataError, Interrupted, PeerError, TrainingError
from deepex.sync import STRATEGIES
from tests.interpreter import PYTHON
from tests.own_loop.loops import Net, make_data, train

WITH_TESTS = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
EXAMPLES = [strategy.example for strategy in STRATEGIES.values()]
MORE = [
    "local:epoch,outer=nesterov",
    "local:4,momentum=average",
    "allreduce+topk:0.1",
    "local:4,after=1",
    "lagged+bf16",
]


def train_by_each(strategies: list[str], fabric: Any, folder: str) -> dict[str, list[str]]:
    """On each rank: a run by each strategy, one after the other; all ranks' fingerprints."""
    found = {}
    for number, sync in enumerate(strategies):
        with dx.start(verbosity="quiet", page=False, name="watch", fabric=fabric, out=f"{folder}/watch{number}") as run:
            model = Net()
            optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.01)
            replicated = dx.Replicated(model, optimizer, sync)
            feed = dx.feed(make_data(), batch_size=10)
            for _ in run.epochs(2):
                for x, y in feed:
                    with replicated.step() as step:
                        step.backward(mse_loss(model(x), y))
            found[sync] = run.fabric.gather(replicated.replica.weights_sha256())
    return found


@pytest.mark.parametrize(("ranks", "fabric"), [(2, "shared"), (3, "torch")])
def test_every_strategy_leaves_equal_replicas_and_a_record_with_a_page(tmp_path: Path, ranks: int, fabric: str) -> None:
    strategies = [*EXAMPLES, *MORE] if ranks == 2 else [each for each in EXAMPLES if "hybrid" not in each]
    found = dx.launch(train_by_each, strategies, fabric, str(tmp_path), ranks=ranks)
    assert list(found) == strategies
    assert all(len(set(prints)) == 1 and len(prints) == ranks for prints in found.values())
    for number, sync in enumerate(strategies):
        run = dx.Run(tmp_path / f"watch{number}")
        assert (run.summary.ranks, run.summary.sync, run.summary.epochs) == (ranks, sync, 2)
        phases = run.summary.phase_seconds
        assert sum(phases[name] for name in ("input", "forward", "backward", "update", "sync")) == pytest.approx(
            run.summary.step_wall_seconds, rel=0.05
        )
        assert run.metrics[1].loss < 3 * run.metrics[0].loss
    page = report(tmp_path / "watch0").read_text()
    assert "training_loss" in page
    assert "It has no target" in page
    assert "training_loss, as the loop gives it" in page
    assert "held-out samples, each" not in page
    assert not any(word in page for word in ("data.batch=", "--stage", "--sync"))  # none of which a loop has
    model = dx.load(tmp_path / "watch0", model=Net())
    assert model(make_data()[0]).shape == (200, 1)


def test_a_rank_that_only_serves_joins_the_loop(tmp_path: Path) -> None:
    found = dx.launch(train_by_each, ["hybrid:2,place=own"], "auto", str(tmp_path), ranks=3)
    assert len(set(found["hybrid:2,place=own"])) == 1
    assert dx.Run(tmp_path / "watch0").summary.sync_notes["server_ranks"] == [2]


def stop_and_go_on(strategies: list[str], folder: str, fabric: Any = "auto") -> list[list[str]]:
    """On each rank: straight, and stopped in the first epoch and resumed; the fingerprints of both."""

    def interrupt(run: dx.Session, number: int) -> None:
        if run.is_first and number == 1:
            os.kill(os.getpid(), signal.SIGINT)

    pairs = []
    for number, sync in enumerate(strategies):
        place = f"{folder}/stopped{number}"
        straight = train(sync, batch_size=2, fabric=fabric, out=f"{folder}/straight{number}")[1]
        with pytest.raises(Interrupted, match=r"stopped in epoch 1 after step \d+ of 50"):
            train(sync, batch_size=2, fabric=fabric, out=place, before_step=interrupt)
        pairs.append([straight, train(sync, batch_size=2, fabric=fabric, resume=place)[1]])
    return pairs


def test_a_loop_that_is_stopped_goes_on_bit_for_bit(tmp_path: Path) -> None:
    strategies = ["allreduce", "local:8", "lagged", "hierarchical", "background:4", "local:4,momentum=average"]
    pairs = dx.launch(stop_and_go_on, strategies, str(tmp_path), ranks=2)
    assert [straight == resumed for straight, resumed in pairs] == [True] * len(strategies)
    rows = [json.loads(line) for line in (tmp_path / "stopped0" / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2]


SLOW_SCRIPT = """
import os, signal, time
import deepex as dx
from tests.own_loop.loops import train

def loop(launcher):
    def work_between(run, number):
        time.sleep(0.02)
        if number == 60 and run.is_first:
            os.kill(launcher, signal.SIGINT)

    train(sync="local:8", batch_size=2, epochs=20, out="run", before_step=work_between)

if __name__ == "__main__":
    dx.launch(loop, os.getpid(), ranks=2)
"""


def test_a_launched_loop_that_works_between_its_steps_stops_soon_and_ends_with_75(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SLOW_SCRIPT)
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, env=WITH_TESTS, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 75, done.stderr
    assert "Traceback" not in done.stderr
    told = re.search(
        r"stopped (in|after) epoch (\d+)(?: after step (\d+) of 50)?; a checkpoint is written", done.stderr
    )
    assert told is not None
    steps = int(told[2]) * 50 if told[1] == "after" else (int(told[2]) - 1) * 50 + int(told[3])
    assert 60 < steps < 60 + 2 * 64  # two checks later at most


def return_much() -> Any:
    return {"path": Path("here"), "number": np.float32(0.5), "pair": (1, 2)}


def return_a_tensor() -> Any:
    return torch.ones(3)


def test_what_a_launched_function_returns_comes_back_or_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    assert dx.launch(return_much) == {"path": "here", "number": 0.5, "pair": [1, 2]}
    assert dx.launch(return_a_tensor) is None
    assert "what return_a_tensor returned is not brought back: it has a Tensor in it" in capfd.readouterr().err


ASKING_SCRIPT = """
import deepex as dx, torch
from torch.nn.functional import mse_loss
x = torch.arange(400.0).reshape(200, 2) / 400
run = dx.run(
    model=lambda: torch.nn.Linear(2, 1), data=(x, x[:, :1]), loss=mse_loss, epochs=2, batch_size=10, out="run",
    verbosity="quiet",
)
print(run.summary.epochs, run.model()(x).shape[0])
"""


def test_every_rank_of_a_launcher_finds_the_outcome(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ASKING_SCRIPT)
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", "train.py"]
    done = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == ["2 200"] * 3 + [""]


MPI_SCRIPT = """
import json, os
from tests.own_loop.test_own_loop_integration import stop_and_go_on
with open(f"pairs{os.environ['PMI_RANK']}.json", "w") as file:
    json.dump(stop_and_go_on(["local:8+bf16"], ".", fabric="mpi"), file)
"""


def test_a_loop_under_mpirun_that_is_stopped_goes_on_bit_for_bit(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(MPI_SCRIPT)
    command = [str(Path(PYTHON).parent / "mpirun"), "-n", "2", PYTHON, "train.py"]
    done = subprocess.run(command, cwd=tmp_path, env=WITH_TESTS, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"pairs{rank}.json").read_text()) for rank in range(2))
    [[straight, resumed]] = first
    assert straight == resumed
    assert first == second  # the replicas


def test_a_script_that_is_stopped_ends_with_75_and_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, signal\n"
        "from tests.own_loop.loops import train\n"
        "train(out='run', before_step=lambda run, number: number == 3 and os.kill(os.getpid(), signal.SIGTERM))\n"
    )
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, env=WITH_TESTS, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 75, done.stderr
    assert 'Go on with dx.start(resume="run").' in done.stderr
    assert "Traceback" not in done.stderr


def fail_on_one(kind: str, folder: str) -> None:
    def break_down(run: dx.Session, number: int) -> None:
        if number == 2 and run.world.rank == 1:
            if kind == "raises":
                raise ZeroDivisionError("of the user's own")
            os.kill(os.getpid(), signal.SIGKILL)

    train(timeout_seconds=20.0, before_step=break_down, out=folder)


@pytest.mark.parametrize(
    ("kind", "error", "said"),
    [("raises", TrainingError, "ZeroDivisionError: of the user's own"), ("killed", TrainingError, "killed by SIGKILL")],
)
def test_a_rank_that_fails_is_named(tmp_path: Path, kind: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said) as raised:
        dx.launch(fail_on_one, kind, str(tmp_path / "run"), ranks=2)
    assert not isinstance(raised.value, PeerError)


def open_other_data(folder: str) -> None:
    with dx.start(verbosity="quiet", page=False, out=folder) as run:
        dx.feed(torch.full((10, 2), float(run.world.rank)), 2)


def log_apart(folder: str) -> None:
    with dx.start(verbosity="quiet", page=False, out=folder) as run:
        model = nn.Linear(4, 1)
        replicated = dx.Replicated(model, torch.optim.SGD(model.parameters(), lr=0.1))
        for x, y in dx.feed(make_data(), 10):
            with replicated.step() as step:
                step.backward(mse_loss(model(x), y))
        run.log(**({"rmse": 0.1} if run.is_first else {"error": 0.2}))


@pytest.mark.parametrize(
    ("loop", "error", "said"),
    [(open_other_data, DataError, "has other data than rank 0"), (log_apart, ConfigError, "logged different figures")],
)
def test_ranks_that_disagree_are_told(tmp_path: Path, loop: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        dx.launch(loop, str(tmp_path / "run"), ranks=2)


def test_the_gan_learns_on_two_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    import gan  # type: ignore[import-not-found]  # an example beside the package

    path = dx.launch(gan.train, "local:8", 5, ranks=2)
    rows = dx.Run(path).metrics
    assert rows[-1].metric == "contact_rmse"
    assert rows[-1].value < 0.8 * rows[0].value
    assert list(rows[0].losses) == ["loss", "discriminator", "generator"]
    both = nn.ModuleDict({"generator": gan.Generator(), "discriminator": gan.Discriminator()})
    made = dx.load(path, model=both)["generator"](torch.randn(4, gan.LATENT))  # type: ignore[index]  # a ModuleDict
    assert made.shape == (4, gan.SIDE, gan.SIDE)
