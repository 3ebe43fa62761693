"""Whole runs of a small real problem, in this process."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from deepex.errors import Interrupted, RunFolderError, TrainingError
from deepex.launch.start import resume, start
from deepex.optim import ScheduleConfig
from deepex.record.folder import RunFolder
from deepex.record.weights import read_weights
from deepex.report import write_report
from deepex.sample import Batch
from deepex.tasks.own import OwnTask
from deepex.train import checkpoint
from deepex.train.recipe import Recipe, StopConfig
from deepex.train.task import Loss

TRIALS = 16  # steps on the first batch that only measure
ENDLESS = StopConfig(epochs=4, target=-1.0)  # a squared error never gets there


def test_a_run_reaches_its_target_and_leaves_a_whole_record(line_recipe: Recipe, tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    folder = start(line_recipe, tmp_path / "run", "quiet")
    summary = folder.read_json("summary.json")
    rows = folder.read_lines("metrics.jsonl")
    assert summary["target_reached"]
    assert summary["value"] == rows[-1]["value"] < summary["target"] < rows[0]["value"]
    assert summary["epochs"] == summary["epochs_to_target"] == len(rows)
    assert 0 < summary["seconds_to_target"] <= summary["seconds"]
    assert 0 < summary["share_of_peak"] < 1
    assert [row["noise_scale"] for row in rows] == [None] * len(rows)  # one rank can't tell it
    assert summary["noise_scale"] is None
    assert summary["energy_joules"] is None or summary["energy_joules"] > 0  # most systems let only root read it
    assert len(folder.read_lines("phases/rank00000.jsonl")) == len(rows)
    record = folder.read_json("record.json")
    assert len(record["data_sha256"]) == 64
    (place,) = record["places"]
    assert place["host"] == record["hardware"]["host"]
    assert place["threads"] == place["cores"] == len(os.sched_getaffinity(0))
    assert summary["threads"] == 1  # the step is too small to share
    assert torch.get_num_threads() == threads  # what comes after the run in this process is left alone
    assert place["heap_kept"]
    assert record["versions"]["torch"].startswith("2.")
    assert {"commit", "clean"} <= set(record["code"])


def test_a_run_that_goes_on_past_its_target_writes_down_when_it_passed(line_recipe: Recipe, tmp_path: Path) -> None:
    passed = start(line_recipe, tmp_path / "ends", "quiet").read_json("summary.json")["epochs"]
    stop = StopConfig(epochs=passed + 2, at_target=False)
    folder = start(replace(line_recipe, stop=stop), tmp_path / "goes_on", "quiet")
    summary, rows = folder.read_json("summary.json"), folder.read_lines("metrics.jsonl")
    assert (summary["epochs_to_target"], summary["epochs"], len(rows)) == (passed, passed + 2, passed + 2)
    assert summary["seconds_to_target"] == rows[passed - 1]["seconds"] < summary["seconds"]
    assert f"reached its target after {passed} epochs and went on" in write_report(folder).read_text()


def test_the_rate_follows_its_schedule(line_recipe: Recipe, tmp_path: Path) -> None:
    schedule = ScheduleConfig(name="steps", warmup_epochs=1.0, milestones=(2.0, 3.0), factors=(0.5, 0.1))
    folder = start(replace(line_recipe, schedule=schedule, stop=ENDLESS), tmp_path / "run", "quiet")
    rows, rate = folder.read_lines("metrics.jsonl"), line_recipe.optimiser.learning_rate
    assert 0.5 * rate < rows[0]["learning_rate"] < rate
    assert [row["learning_rate"] for row in rows[1:]] == pytest.approx([rate, 0.5 * rate, 0.05 * rate])
    plain = start(replace(line_recipe, stop=ENDLESS), tmp_path / "plain", "quiet")
    hashes = {each.read_json("summary.json")["weights_sha256"] for each in (folder, plain)}
    assert len(hashes) == 2


def test_the_same_recipe_gives_the_same_bits(line_recipe: Recipe, tmp_path: Path) -> None:
    hashes = [start(line_recipe, tmp_path / name, "quiet").read_json("summary.json")["weights_sha256"] for name in "ab"]
    other = start(replace(line_recipe, seed=1), tmp_path / "c", "quiet").read_json("summary.json")["weights_sha256"]
    assert hashes[0] == hashes[1] != other


def interrupted_at(call: int, task: OwnTask, marker: Path) -> OwnTask:
    """The task, with a real SIGINT in its `call`-th step; the marker is made then, so that it comes only once."""
    calls = 0

    def objective(model: nn.Module, batch: Batch) -> Tensor | Loss:
        nonlocal calls
        calls += model.training
        if calls == call and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGINT)
        return task.objective(model, batch)

    return replace(task, objective=objective)


@pytest.mark.parametrize("sync", ["allreduce", "local:3"])
def test_a_run_stopped_by_a_signal_goes_on_bit_for_bit(line: OwnTask, tmp_path: Path, sync: str) -> None:
    recipe = Recipe(task=line, stop=ENDLESS, sync=sync)
    whole = start(recipe, tmp_path / "whole", "quiet")
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted, match="deepex resume") as stopped:
        start(replace(recipe, task=interrupted_at(TRIALS + 11, line, tmp_path / "marker")), tmp_path / "parts", "quiet")
    assert stopped.value.exit_code == 75
    assert signal.getsignal(signal.SIGINT) is before
    assert not (tmp_path / "parts" / "summary.json").exists()
    parts = resume(tmp_path / "parts", "quiet")
    first, second = whole.read_json("summary.json"), parts.read_json("summary.json")
    assert first["weights_sha256"] == second["weights_sha256"]
    assert [row["losses"] for row in whole.read_lines("metrics.jsonl")] == [
        row["losses"] for row in parts.read_lines("metrics.jsonl")
    ]
    with pytest.raises(RunFolderError, match="is complete"):
        resume(tmp_path / "parts", "quiet")


def test_a_run_that_dies_between_checkpoints_repeats_only_what_was_lost(line: OwnTask, tmp_path: Path) -> None:
    recipe = Recipe(task=line, stop=ENDLESS, checkpoint_epochs=2)
    whole = start(recipe, tmp_path / "whole", "quiet")
    calls = 0

    def dies_once(model: nn.Module, batch: Batch) -> Tensor | Loss:
        nonlocal calls
        calls += model.training
        if calls == TRIALS + 26:  # seven steps an epoch: in the fourth
            raise MemoryError
        return line.objective(model, batch)

    with pytest.raises(MemoryError):
        start(replace(recipe, task=replace(line, objective=dies_once)), tmp_path / "parts", "quiet")
    assert len((tmp_path / "parts" / "metrics.jsonl").read_text().splitlines()) == 3
    parts = resume(tmp_path / "parts", "quiet")
    assert [row["epoch"] for row in parts.read_lines("metrics.jsonl")] == [1, 2, 3, 4]
    assert whole.read_json("summary.json")["weights_sha256"] == parts.read_json("summary.json")["weights_sha256"]


def test_a_loss_that_is_not_a_number_names_step_rank_and_checkpoint(line: OwnTask, tmp_path: Path) -> None:
    recipe = Recipe(task=line, stop=ENDLESS)
    explosive = replace(recipe, optimiser=replace(recipe.optimiser, name="sgd", learning_rate=1e30))
    with pytest.raises(TrainingError) as raised:
        start(explosive, tmp_path / "run", "quiet")
    assert raised.value.exit_code == 1
    assert "rank 0 of 1" in str(raised.value)
    assert "in step" in str(raised.value)
    assert "checkpoint is none" in str(raised.value)
    assert "smaller optimiser.learning_rate than 1e+30" in str(raised.value)


def test_a_damaged_checkpoint_is_named_with_both_hashes(line: OwnTask, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        start(
            Recipe(task=interrupted_at(TRIALS + 4, line, tmp_path / "marker"), stop=ENDLESS), tmp_path / "run", "quiet"
        )
    file = next((tmp_path / "run" / "checkpoints").glob("*/rank00000.pt"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    manifest = json.loads((file.parent / "manifest.json").read_text())
    with pytest.raises(RunFolderError) as raised:
        resume(tmp_path / "run", "quiet")
    assert manifest["sha256"][0] in str(raised.value)
    assert "rank00000.pt is damaged" in str(raised.value)


def test_a_half_written_checkpoint_is_not_seen(line_recipe: Recipe, tmp_path: Path) -> None:
    folder = start(line_recipe, tmp_path / "run", "quiet")
    good = checkpoint.latest(folder)
    (folder.checkpoints / "epoch99999_step000000.partial").mkdir()
    (folder.checkpoints / "epoch99999_step000000.partial" / "manifest.json").write_text("{}")
    assert checkpoint.latest(folder) == good


class Counting(nn.Module):
    """Counts what it sees, in whole numbers and with a mean over all batches."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = nn.BatchNorm1d(4, momentum=None), nn.Linear(4, 1)
        self.steps: Tensor
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.steps += 1
        value: Tensor = self.last(self.norm(x))
        return value


def test_buffers_of_whole_numbers_count_real_steps_alone_and_survive_a_stop(line: OwnTask, tmp_path: Path) -> None:
    counting = replace(line, network=Counting)
    recipe = Recipe(task=counting, stop=replace(ENDLESS, epochs=3), checkpoint_epochs=1)
    start(recipe, tmp_path / "straight", "quiet")
    straight = read_weights(checkpoint.weights_file(RunFolder(tmp_path / "straight"), "last"))
    steps = 3 * (480 // 64)
    assert int(straight["steps"]) == int(straight["norm.num_batches_tracked"]) == steps
    marker = tmp_path / "marker"
    with pytest.raises(Interrupted):
        start(replace(recipe, task=interrupted_at(TRIALS + 10, counting, marker)), tmp_path / "parts", "quiet")
    resume(tmp_path / "parts", "quiet")
    resumed = read_weights(checkpoint.weights_file(RunFolder(tmp_path / "parts"), "last"))
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in straight.items())
