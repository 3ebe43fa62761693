"""Precision: what is resolved, how a loss is scaled, and a real problem solved in each."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from deepex.data.source import read_all
from deepex.launch.start import start
from deepex.record.sinks.progress import Verbosity
from deepex.sample import Batch
from deepex.tasks.own import OwnTask, task
from deepex.tasks.protein import Protein
from deepex.train.compute.precision import LossScale, Precision, advise, has_instructions, resolve_precision
from deepex.train.recipe import Recipe, StopConfig


def native_fraction() -> OwnTask:
    """How much of a protein is folded, from its contact map: real frames, and a mean that is off by 0.19."""
    frames = read_all(Protein().data().train, limit=2000)

    def error(model: nn.Module, batch: Batch) -> Tensor:
        return nn.functional.mse_loss(model(batch["map"])[:, 0].float(), batch["fraction"])

    return task(
        name="fraction",
        model=lambda: nn.Sequential(
            nn.Unflatten(1, (1, 28)), nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(1352, 1)
        ),
        data={"map": frames["contact_map"].float(), "fraction": frames["native_fraction"]},
        loss=error,
        target=0.0005,
    )


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_real_problem_is_solved_in_each_precision(
    precision: Precision, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = native_fraction()
    assert task.data().train.source.tensors["fraction"].var() > 0.01  # type: ignore[attr-defined]  # not solved by a mean
    recipe = Recipe(task=task, precision=precision, stop=StopConfig(epochs=40))
    verbosity: Verbosity = "lines"
    folder = start(recipe, tmp_path / "run", verbosity)
    summary = folder.read_json("summary.json")
    assert summary["target_reached"]
    assert summary["precision"] == precision
    assert folder.read_json("record.json")["recipe"]["precision"] == precision
    said = capsys.readouterr().out
    assert f"computing in {precision}" in said
    if not has_instructions(precision, torch.device("cpu")):
        assert f"warning: {precision} matrix products run at" in said
        assert "--precision fp32 is likely faster" in said


def test_precisions_differ_in_their_numbers_and_each_repeats_its_own(tmp_path: Path) -> None:
    recipe = Recipe(task=native_fraction(), stop=StopConfig(epochs=1))
    precisions: tuple[Precision, ...] = ("fp32", "bf16", "bf16")
    hashes = []
    for number, precision in enumerate(precisions):
        folder = start(replace(recipe, precision=precision), tmp_path / str(number), "quiet")
        hashes.append(folder.read_json("summary.json")["weights_sha256"])
    assert hashes[0] != hashes[1] == hashes[2]


def test_a_cpu_computes_with_what_was_asked_for() -> None:
    for precision in ("fp32", "bf16", "fp16"):
        assert resolve_precision(precision, torch.device("cpu")) == precision


def test_the_warning_names_the_measured_ratio() -> None:
    assert advise("fp32", 1.0, instructions=True) == ""
    assert advise("bf16", 1.9, instructions=True) == ""
    assert "0.80 times the fp32 rate" in advise("bf16", 0.8, instructions=True)
    assert "which has no instructions" in advise("bf16", 1.3, instructions=False)


def test_an_overflow_drops_the_step_and_halves_the_scale() -> None:
    scale = LossScale("fp16")
    first = scale.state["scale"]
    assert scale.scale(torch.tensor(2.0)).item() == 2 * first
    gradients = torch.tensor([first, float("inf")])
    assert not scale.unscale(gradients)
    assert scale.state["scale"] == first / 2
    gradients = torch.tensor([first, -first])
    assert scale.unscale(gradients)
    assert gradients.tolist() == [2.0, -2.0]


def test_the_scale_grows_after_many_good_steps() -> None:
    scale = LossScale("fp16")
    for _ in range(LossScale.GROWTH_STEPS):
        assert scale.unscale(torch.ones(1))
    assert scale.state == {"scale": 2 * LossScale.FIRST, "steps": 0.0}


def test_other_precisions_scale_nothing() -> None:
    gradients = torch.tensor([1.0, float("nan")])
    assert LossScale("bf16").unscale(gradients)
    assert gradients[0] == 1.0
