"""What classifiers share counts as one counts by hand."""

import math

import pytest
import torch
from torch import Tensor, nn

from deepex.record.illustration import ImageGrid, Matrix
from deepex.tasks.classes import Answers, class_errors, class_loss, illustrate_classes
from deepex.train.task import Tally


class Parrot(nn.Module):
    """Says what it is given: the images are the logits."""

    def forward(self, images: Tensor) -> Tensor:
        return images


def _scores(*right_places: int, classes: int = 7) -> dict[str, Tensor]:
    """For each image, scores that put its class, 0, at a place."""
    rows = []
    for place in right_places:
        row = torch.arange(classes, 0, -1.0)
        row[0] = classes - place - 0.5  # below the scores of `place` others
        rows.append(row)
    return {"image": torch.stack(rows), "label": torch.zeros(len(rows), dtype=torch.int64)}


def test_errors_count_the_first_and_the_first_five() -> None:
    tally = class_errors(Parrot(), _scores(0, 1, 4, 5, 6))
    assert (tally.total, tally.count) == (4.0, 5)
    assert tally.beside == {"top5_error": 2.0}
    merged = Tally.merge([tally, class_errors(Parrot(), _scores(0, 0, 0))])
    assert merged.value == 0.5
    assert merged.values_beside == {"top5_error": 0.25}


def test_fewer_classes_than_five_have_no_top_five_error() -> None:
    tally = class_errors(Parrot(), _scores(1, 2, classes=3))
    assert tally.total == 2.0
    assert tally.beside == {"top5_error": 0.0}


def test_the_loss_is_the_cross_entropy_smoothed_or_not() -> None:
    batch = {"image": torch.tensor([[0.0, math.log(3.0)]]), "label": torch.tensor([0])}
    assert class_loss(Parrot(), batch).total.item() == pytest.approx(math.log(4.0))
    smoothed = 0.95 * math.log(4.0) + 0.05 * math.log(4.0 / 3.0)
    assert class_loss(Parrot(), batch, smoothing=0.1).total.item() == pytest.approx(smoothed)


def test_pictures_show_right_and_wrong_images_and_who_is_taken_for_whom() -> None:
    batch = _scores(*[0] * 90, *[1] * 10)
    answers = Answers.ask(Parrot(), batch, [f"c{number}" for number in range(7)])
    illustration = illustrate_classes(answers, batch["image"], lambda images: images.numpy())
    assert illustration.findings == pytest.approx({"top1_error": 0.1, "top5_error": 0.0})
    assert "first for 90.0 %" in illustration.sentence
    assert "10 % of 'c0' are taken for 'c1'" in illustration.sentence
    grid, matrix = illustration.pictures
    assert isinstance(grid, ImageGrid)
    assert grid.verdicts == [True] * 5 + [False] * 5
    assert len(grid.images) == len(grid.labels) == 10
    assert grid.labels[0].startswith("c0:\n")
    assert len(grid.labels[0].split("\n")) == 6
    assert grid.labels[-1].split("\n")[1].endswith("% c1")
    assert isinstance(matrix, Matrix)
    assert matrix.counts[0].tolist() == [90, 10, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("places", [[0] * 30, [1] * 30, [0, 1]])
def test_a_network_that_is_always_right_or_always_wrong_has_pictures_too(places: list[int]) -> None:
    batch = _scores(*places)
    answers = Answers.ask(Parrot(), batch, [f"c{number}" for number in range(7)])
    illustration = illustrate_classes(answers, batch["image"], lambda images: images.numpy())
    grid = illustration.pictures[0]
    assert isinstance(grid, ImageGrid)
    assert len(grid.images) == min(10, len(places))
    assert ("mistake" in illustration.sentence) == (1 in places)


def test_many_classes_have_no_matrix() -> None:
    batch = _scores(0, 1, classes=41)
    answers = Answers.ask(Parrot(), batch, [str(number) for number in range(41)])
    assert len(illustrate_classes(answers, batch["image"], lambda images: images.numpy()).pictures) == 1
