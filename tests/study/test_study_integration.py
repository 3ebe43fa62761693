"""Studies of real runs: figures that can be checked by hand, kills, failures, ranks without cores."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from statistics import median

import pytest
import torch
from torch import Tensor, nn

from deepex import api
from deepex.errors import DeepexError
from deepex.launch.recipes import write_recipe
from deepex.record.folder import RunFolder
from deepex.record.study_rows import Estimate
from deepex.sample import Batch
from deepex.tasks.own import OwnTask, task
from deepex.train.recipe import Recipe, StopConfig

REPOSITORY = Path(__file__).parents[2]  # where runs find the module that this task is of


def squared_error(model: nn.Module, batch: Batch) -> Tensor:
    error: Tensor = model(batch["x"]) - batch["y"]
    return error.square().mean()


def plane() -> OwnTask:
    """A plane through noisy points, which takes a few epochs."""
    noise = torch.Generator().manual_seed(0)
    x = torch.randn(600, 4, generator=noise)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5], [3.0]]) + 0.1 * torch.randn(600, 1, generator=noise)
    return task(
        name="plane",
        model=lambda: nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1)),
        data={"x": x, "y": y},
        loss=squared_error,
        target=0.5,
    )


def study_a_plane(out: Path) -> api.Study:
    """One rank and two, two seeds."""
    rate = {"settings": {"optimiser.learning_rate": 0.02}}
    return api.run_study(plane(), out=out, verbosity="quiet", ranks=(1, 2), sync=("local:4",), repeats=2, changes=rate)


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> api.Study:
    return study_a_plane(tmp_path_factory.mktemp("studied") / "study")


def by_hand(study: Path, cell: str, cutoff: float) -> list[tuple[float, int | None]]:
    """Seconds of an epoch and epochs to a cut-off, of each run, straight from its metrics.jsonl."""
    found = []
    for path in sorted(study.glob(f"runs/{cell}_seed*/metrics.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        ends = [row["seconds"] for row in rows]
        epochs = [end - (ends[place - 1] if place else 0.0) for place, end in enumerate(ends)]
        found.append((median(epochs), next((row["epoch"] for row in rows if row["value"] < cutoff), None)))
    return found


def value(found: Estimate | None) -> float:
    assert found is not None
    return found.value


def geometric_mean(values: list[float]) -> float:
    return math.prod(values) ** (1 / len(values))


def test_speedups_are_those_that_metrics_give_by_hand(studied: api.Study) -> None:
    outcome = studied.outcome
    alone, both = (next(cell for cell in outcome.cells if cell.ranks == ranks) for ranks in (1, 2))
    speedup = value(both.speedup)
    for place, cutoff in enumerate(outcome.cutoffs):
        hand = {cell.name: by_hand(studied.path, cell.name, cutoff) for cell in (alone, both)}
        seconds = {name: geometric_mean([each for each, _ in runs]) for name, runs in hand.items()}
        assert speedup == pytest.approx(seconds[alone.name] / seconds[both.name], rel=1e-9)
        times = {name: geometric_mean([each * (n or 0) for each, n in runs]) for name, runs in hand.items()}
        learned = value(both.cutoffs[place].speedup)
        assert learned == pytest.approx(times[alone.name] / times[both.name], rel=1e-9)
    assert value(both.efficiency) == pytest.approx(speedup / 2)
    assert set(both.phase_seconds) >= {"input", "forward", "backward", "update", "sync"}
    assert both.target_epochs == tuple(n for _, n in by_hand(studied.path, both.name, outcome.cutoffs[-1]))
    assert both.energy_joules is None or both.energy_joules > 0


def test_the_page_shows_these_figures(studied: api.Study) -> None:
    page, (alone, both) = studied.page.read_text(), studied.outcome.cells
    assert f"{value(both.speedup):#.3g} (" in page
    assert f"{value(both.cutoffs[-1].speedup):#.3g} (" in page
    assert value(alone.speedup) == 1.0


def test_every_rank_had_one_core_in_every_cell(studied: api.Study) -> None:
    cores = len(os.sched_getaffinity(0)) // 2
    for path in studied.path.glob("runs/*/record.json"):
        assert {place["cores"] for place in json.loads(path.read_text())["places"]} == {float(cores)}


def test_started_again_nothing_is_run_twice(studied: api.Study) -> None:
    before = {path: path.stat().st_mtime_ns for path in studied.path.glob("runs/*/*")}
    table = studied.outcome
    again = study_a_plane(studied.path)
    assert again.outcome == table
    assert {path: path.stat().st_mtime_ns for path in studied.path.glob("runs/*/*")} == before


def test_figures_stand_beside_the_page(studied: api.Study) -> None:
    names = {path.stem for path in studied.path.glob("figures/*.csv")}
    assert {"speedup", "learning-speedup", "efficiency", "phases-seconds", "phases-share", "quality-seconds"} <= names
    for name in names:
        assert (studied.path / f"figures/{name}.png").stat().st_size > 1000
        assert (studied.path / f"figures/{name}.pdf").read_bytes().startswith(b"%PDF")
    assert re.findall(rb"/Type /Pages.*/Count (\d+)", (studied.path / "scaling_summary.pdf").read_bytes()) == [b"1"]


def test_two_studies_on_one_page_say_what_they_differ_in(studied: api.Study, tmp_path: Path) -> None:
    other = Path(shutil.copytree(studied.path, tmp_path / "other"))
    for path in other.glob("runs/*/record.json"):
        record = json.loads(path.read_text())
        record["hardware"] |= {"host": "elsewhere", "processor": "Another Processor"}
        record["code"]["commit"] = "0123456789" * 4
        path.write_text(json.dumps(record))
    page = api.compare([studied.path, other], tmp_path / "both.html").read_text()
    assert "Runs of different machines or commits stand on this page" in page
    assert "Another Processor" in page
    assert "012345678901" in page


def start(words: list[str]) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "deepex", "study", *words]
    return subprocess.Popen(command, cwd=REPOSITORY, process_group=0)


def states(study: Path) -> dict[str, str]:
    path = study / "cells.json"
    return {run["name"]: run["state"] for run in json.loads(path.read_text())["runs"]} if path.exists() else {}


KILLS = {
    signal.SIGKILL: ("--ranks 1,2 --repeats 1", "1r_alone_seed0", "2r_allreduce_seed0"),
    signal.SIGTERM: ("--ranks 1 --repeats 2", "1r_alone_seed0", "1r_alone_seed1"),
}


@pytest.mark.parametrize("kill", KILLS)
def test_a_killed_study_goes_on_and_runs_nothing_twice(kill: signal.Signals, tmp_path: Path) -> None:
    recipe = Recipe(task=plane(), stop=StopConfig(epochs=120, target=1e-9), checkpoint_epochs=20)
    (tmp_path / "base").mkdir()
    write_recipe(RunFolder(tmp_path / "base"), recipe)
    axes, first, second = KILLS[kill]
    study = tmp_path / "study"
    rows, done = study / "runs" / second / "metrics.jsonl", study / "runs" / first / "summary.json"
    words = [str(tmp_path / "base/recipe.toml"), *axes.split(), "--out", str(study), "--quiet"]
    first_try = start(words)
    while not rows.exists():
        with suppress(subprocess.TimeoutExpired):
            pytest.fail(f"it ended with {first_try.wait(0.1)} before its second run had an epoch")
    os.kill(first_try.pid, kill)
    assert first_try.wait(60) == (-signal.SIGKILL if kill == signal.SIGKILL else 75)
    stamp = done.stat().st_mtime_ns
    assert start(words).wait(120) == 0
    assert done.stat().st_mtime_ns == stamp
    assert states(study) == {first: "done", second: "done"}
    epochs = [json.loads(line)["epoch"] for line in rows.read_text().splitlines()]
    assert epochs == list(range(1, 121))
    ranks, seed = int(second[0]), int(second[-1])
    never_killed = api.run(recipe, ranks=ranks, seed=seed, out=tmp_path / "whole", verbosity="quiet", page=False)
    found = json.loads((rows.parent / "summary.json").read_text())
    assert found["weights_sha256"] == never_killed.summary.weights_sha256


def test_a_failed_run_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    rates = ("optimiser.learning_rate=0.01,1e30",)
    study = api.run_study(plane(), out=tmp_path / "study", verbosity="quiet", ranks=(1,), repeats=1, vary=rates)
    outcome = study.outcome
    assert outcome.states == {"done": 1, "running": 0, "stopped": 0, "left": 0, "failed": 1}
    assert all("the loss is" in error for error in outcome.failures.values())
    assert "_seed0 failed: rank 0" in study.page.read_text()


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> api.Study:
    """More ranks than cores, and a quality that nobody reaches."""
    return api.run_study(
        plane(),
        out=tmp_path_factory.mktemp("troubled") / "study",
        verbosity="quiet",
        ranks=(1, len(os.sched_getaffinity(0)) + 1),
        repeats=1,
        cutoffs=(1e-6, 1e-9),
        changes={"settings": {"stop.epochs": 2, "stop.target": 1e-9}},
    )


def test_ranks_without_cores_are_marked_and_claim_no_efficiency(troubled: api.Study) -> None:
    cells, page = troubled.outcome.cells, troubled.page.read_text()
    assert [cell.oversubscribed for cell in cells] == [False, True]
    assert cells[1].efficiency is None
    assert '<section class="warning" role="alert"><p>More ranks than cores' in page
    assert "none: cores shared" in page


def test_what_is_never_reached_is_no_number(troubled: api.Study) -> None:
    for cell in troubled.outcome.cells:
        for each in cell.cutoffs:
            assert (each.speedup, each.why_no_speedup) == (None, "not reached (0 of 1 runs)")
    assert "not reached" in troubled.page.read_text()


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(DeepexError, match="exists and is no study"):
        api.run_study(plane(), out=tmp_path, verbosity="quiet", repeats=1)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
