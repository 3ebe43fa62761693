"""Data that a model can't take is told before anything is trained, with what was given."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from deepex.data import Plan
from deepex.errors import ConfigError, DataError
from deepex.launch.start import start
from deepex.models.lenet import LeNet5
from deepex.sample import Batch
from deepex.tasks.own import task
from deepex.train.recipe import Recipe
from deepex.world import World


def digits(images: Tensor, labels: Tensor, classes: int = 10) -> Recipe:
    def error(model: nn.Module, batch: Batch) -> Tensor:
        return nn.functional.cross_entropy(model(batch["image"]), batch["label"])

    own = task(
        name="digits",
        model=lambda: LeNet5(shape=(1, 28, 28), classes=classes),
        data={"image": images, "label": labels},
        loss=error,
        target=0.0,
    )
    return Recipe(task=own)


LABELS = torch.arange(200) % 10


def test_a_wrong_shape_names_both(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"shape \(64, 3, 28, 28\), and takes samples of shape \(1, 28, 28\)") as raised:
        start(digits(torch.rand(200, 3, 28, 28), LABELS), tmp_path / "run", "quiet")
    assert raised.value.exit_code == 2
    assert not (tmp_path / "run" / "summary.json").exists()


def test_a_wrong_dtype_names_what_was_given(tmp_path: Path) -> None:
    images = torch.zeros(200, 1, 28, 28, dtype=torch.uint8)
    with pytest.raises(DataError, match=r"image: uint8 of shape \(64, 1, 28, 28\), 0 to 0"):
        start(digits(images, LABELS), tmp_path / "run", "quiet")


def test_more_classes_in_the_data_than_in_the_model_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"label: int64 of shape \(64,\), 0 to 9.*out of bounds.*class numbers"):
        start(digits(torch.rand(200, 1, 28, 28), LABELS, classes=5), tmp_path / "run", "quiet")


def test_a_class_that_only_a_later_batch_holds_is_named_too(tmp_path: Path) -> None:
    labels = torch.zeros(2000, dtype=torch.int64)
    recipe = digits(torch.rand(2000, 1, 28, 28), labels, classes=5)
    source = recipe.task.data().train
    plan = Plan.for_rank(recipe.data, len(source), recipe.seed, World())
    labels[source.indices[plan.indices(0)[9, 3]]] = 7  # type: ignore[attr-defined]  # a Subset of the arrays
    with pytest.raises(DataError, match=r"label: int64 of shape \(64,\), 0 to 7.*Target 7 is out of bounds"):
        start(recipe, tmp_path / "run", "quiet")


def test_a_gradient_that_is_taken_from_deepex_is_told(tmp_path: Path) -> None:
    def error(model: nn.Module, batch: Batch) -> Tensor:
        model.zero_grad()
        result: Tensor = model(batch["x"]).square().mean()
        return result

    own = task(model=lambda: nn.Linear(2, 1), data={"x": torch.rand(100, 2)}, loss=error, target=0.0)
    with pytest.raises(ConfigError, match="no zero_grad"):
        start(Recipe(task=own), tmp_path / "run", "quiet")
