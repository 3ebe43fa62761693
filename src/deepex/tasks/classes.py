"""What image classifiers share: the loss, top-1 and top-5 error, images with what the network took them for.

It knows class numbers and their names, and no data set.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from deepex.record.illustration import Illustration, ImageGrid, Matrix, Picture
from deepex.sample import Batch
from deepex.train.task import Loss, Tally

TOP = 5
AT_ONCE = 50  # images a forward, when pictures are made
SHOWN = 10
MOST_ROWS = 40  # of a confusion matrix that can still be read


def class_loss(model: nn.Module, batch: Batch, smoothing: float = 0.0) -> Loss:
    """Cross-entropy of `label` given `image`; with smoothing s the truth is 1 - s, and s spread over all classes.

    Reference: Szegedy et al., Rethinking the Inception architecture, CVPR 2016.
    """
    return Loss(total=functional.cross_entropy(model(batch["image"]), batch["label"], label_smoothing=smoothing))


def class_errors(model: nn.Module, batch: Batch) -> Tally:
    """How many images are not of the class that is first, and beside it, of none of the first five."""
    is_right = _right(model(batch["image"]).float(), batch["label"])
    count = len(is_right)
    return Tally(
        total=float(count - is_right[:, 0].sum()),
        count=count,
        beside={"top5_error": float(count - is_right.any(dim=1).sum())},
    )


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a network says of images: probabilities (N x classes), their true classes (N), and the classes' names."""

    probabilities: Tensor
    labels: Tensor
    names: tuple[str, ...]

    @classmethod
    def ask(cls, model: nn.Module, batch: Batch, names: Sequence[str]) -> "Answers":
        model.eval()
        with torch.no_grad():
            parts = [torch.softmax(model(images).float(), dim=1) for images in torch.split(batch["image"], AT_ONCE)]
        return cls(probabilities=torch.cat(parts), labels=batch["label"], names=tuple(names))

    @property
    def taken_for(self) -> Tensor:
        return self.probabilities.argmax(dim=1)

    @property
    def errors(self) -> dict[str, float]:
        """Top-1 and top-5 error."""
        is_right = _right(self.probabilities, self.labels)
        return {
            "top1_error": 1 - float(is_right[:, 0].double().mean()),
            "top5_error": 1 - float(is_right.any(dim=1).double().mean()),
        }

    @property
    def confusion(self) -> NDArray[np.int64]:
        """How many images of a class (row) were taken for another (column)."""
        size = len(self.names)
        return torch.bincount(self.labels * size + self.taken_for, minlength=size * size).view(size, size).numpy()

    def first(self, image: int, count: int = TOP) -> str:
        """The true class of an image and the most probable ones, a line each."""
        shares, classes = self.probabilities[image].topk(min(count, len(self.names)))
        lines = [f"{100 * share:.0f} % {self.names[number]}" for share, number in zip(shares, classes, strict=True)]
        return "\n".join([f"{self.names[int(self.labels[image])]}:", *lines])


def illustrate_classes(answers: Answers, images: Tensor, show: Callable[[Tensor], NDArray[Any]]) -> Illustration:
    """Images with their top five, right and wrong ones; which classes are taken for which; both errors.

    Arguments:
        images: what the network was given.
        show: makes some of them into what an ImageGrid holds.
    """
    errors, confusion = answers.errors, answers.confusion
    sentence = (
        f"Of {len(images):,} held-out images, the right class comes first for {100 * (1 - errors['top1_error']):.1f} % "
        f"and is among the first {TOP} for {100 * (1 - errors['top5_error']):.1f} %.{_worst(confusion, answers.names)}"
    )
    pictures: list[Picture] = [_gallery(answers, images, show)]
    if len(answers.names) <= MOST_ROWS:
        pictures.append(
            Matrix(
                title="What is taken for what",
                caption="Held-out images by their true class (rows) and the class that the network puts first.",
                names=answers.names,
                counts=confusion,
            )
        )
    return Illustration(findings=errors, sentence=sentence, pictures=pictures)


def _right(scores: Tensor, labels: Tensor) -> Tensor:
    """Whether each of the first classes (B x up to five) is the right one."""
    first = scores.topk(min(TOP, scores.shape[1]), dim=1).indices
    return first == labels[:, None]


def _gallery(answers: Answers, images: Tensor, show: Callable[[Tensor], NDArray[Any]]) -> ImageGrid:
    is_right = (answers.taken_for == answers.labels).numpy()
    right, wrong = np.flatnonzero(is_right), np.flatnonzero(~is_right)
    num_wrong = min(len(wrong), max(SHOWN // 2, SHOWN - len(right)))
    chosen = np.concatenate([_spread(right, SHOWN - num_wrong), _spread(wrong, num_wrong)])
    return ImageGrid(
        title="Images and what the network takes them for",
        caption="Held-out images, evenly chosen from those it has right and from those it has wrong: the true class, "
        "then the five that it finds most probable.",
        names=("",),
        images=show(images[torch.from_numpy(chosen)]),
        labels=[answers.first(index) for index in chosen.tolist()],
        verdicts=is_right[chosen].tolist(),
    )


def _spread(indices: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    count = min(count, len(indices))
    return indices[np.linspace(0, len(indices) - 1, count).round().astype(np.int64)] if count else indices[:0]


def _worst(confusion: NDArray[np.int64], names: Sequence[str]) -> str:
    """The most frequent mistake, in words."""
    mistakes = confusion - np.diag(np.diag(confusion))
    if not mistakes.any():
        return ""
    true, taken = divmod(int(mistakes.argmax()), len(names))
    share = mistakes[true, taken] / confusion[true].sum()
    return f" The most frequent mistake: {100 * share:.0f} % of '{names[true]}' are taken for '{names[taken]}'."
