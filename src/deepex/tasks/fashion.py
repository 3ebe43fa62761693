"""Fashion-MNIST: 70,000 grey images of clothes in ten classes, the small real set of image classification.

It is read as Debian packages it; the 10,000 images of its test set are the validation.
"""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from deepex.data import ArraySource, DataConfig, Preparation, Splits
from deepex.data.feeding.augment import Augmentation, Crop, Flip
from deepex.data.feeding.convert import Convert
from deepex.data.sources.idx import read_idx
from deepex.data.statistics import Moments
from deepex.errors import ConfigError, DataError
from deepex.models.lenet import LeNet5
from deepex.models.resnet import ResNet14, ResNet50
from deepex.optim import OptimiserConfig, ScheduleConfig
from deepex.record.illustration import Illustration
from deepex.sample import Batch, Field
from deepex.tasks.classes import Answers, class_errors, class_loss, illustrate_classes
from deepex.tasks.network import build_network, check_network, locate_network
from deepex.train.recipe import Recipe, StopConfig
from deepex.train.task import Loss, Tally, Target

DEBIAN_FOLDER = "/usr/share/datasets/fashion-mnist"
CLASSES = (
    *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
PARTS = {"train": "train", "validation": "t10k"}  # how the names of their files begin
Size = Literal["small", "medium", "paper"]


@dataclass(frozen=True, kw_only=True)
class Fashion:
    """The task: LeNet-5, ResNet-14 or ResNet-50, by size. `folder` holds the four IDX files; none: Debian's.

    In training, images are mirrored or not and moved by up to `shift` pixels, and labels are smoothed. `network` is one
    of your own, `file.py:name`, called with `shape` and `classes`. `shape` is that of images; none: as in the files.
    """

    name: Literal["fashion"] = "fashion"
    size: Size = "small"
    folder: str | None = None
    smoothing: float = 0.1
    shift: int = 0
    network: str | None = None
    shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.smoothing < 1:
            raise ConfigError(f"task.smoothing = {self.smoothing}. Allowed: numbers from 0 to below 1.")
        if not 0 <= self.shift <= 14:
            raise ConfigError(f"task.shift = {self.shift}. Allowed: whole numbers from 0 to 14 pixels.")
        check_network(self.network)

    @property
    def target(self) -> Target:
        """Top-1 error on the test set; docs/science/imagenet.md says how it was chosen."""
        return Target(metric="error", threshold=0.10 if self.size == "small" else 0.07)

    def data(self) -> Splits:
        """Training and test images, with a frame to move them in."""
        arrays = self._arrays
        digest = hashlib.sha256()
        for part in arrays.values():
            for name, array in part.items():
                digest.update(f"{name} {array.dtype} {array.shape} ".encode() + array.tobytes())
        side = arrays["train"]["image"].shape[-1]
        augment: list[Augmentation] = [Flip(fields=("image",), axes=(-1,))]
        if self.shift:
            augment.append(Crop(fields=("image",), size=(side, side)))
        return Splits(
            train=self._source("train"),
            validation=self._source("validation"),
            content_sha256=digest.hexdigest(),
            preparation=Preparation(convert={"image": self._convert}, augment=augment),
        )

    def model(self) -> nn.Module:
        given: dict[str, Any] = {"shape": self.shape or self._shape, "classes": len(CLASSES)}
        if self.network is not None:
            return build_network(self.network, **given)
        if self.size == "small":
            return LeNet5(**given)
        return ResNet14(**given) if self.size == "medium" else ResNet50(**given, stem="small")

    def resolved(self) -> "Fashion":
        return replace(self, shape=self._shape, network=locate_network(self.network))

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        return class_loss(model, batch, self.smoothing)

    def evaluate(self, model: nn.Module, batch: Batch) -> Tally:
        return class_errors(model, batch)

    def illustrate(self, model: nn.Module, train: Batch, validation: Batch) -> Illustration:
        """Test images with their top five, and which clothes are taken for which."""

        def show(images: Tensor) -> NDArray[np.float32]:
            return np.clip(self._convert.undo(images.numpy()) / 255, 0, 1)

        return illustrate_classes(Answers.ask(model, validation, CLASSES), validation["image"], show)

    @property
    def _shape(self) -> tuple[int, ...]:
        return self._arrays["train"]["image"].shape[1:]

    @cached_property
    def _convert(self) -> Convert:
        """Mean 0 and deviation 1 over the training images as they are, without a frame."""
        images = self._arrays["train"]["image"]
        return Convert.z_score(Moments.of(images.reshape(len(images), 1, -1)))

    @cached_property
    def _arrays(self) -> dict[str, dict[str, NDArray[Any]]]:
        folder = Path(self.folder or DEBIAN_FOLDER)
        return {part: _read_part(folder, prefix) for part, prefix in PARTS.items()}

    def _source(self, part: str) -> ArraySource:
        images, labels = self._arrays[part]["image"], self._arrays[part]["label"]
        frame = (self.shift, self.shift)
        framed = np.pad(images, ((0, 0), (0, 0), frame, frame))
        fields = {
            "image": Field(shape=framed.shape[1:], dtype="uint8", channels=("grey",)),
            "label": Field(shape=(), dtype="int64", description="class", classes=CLASSES),
        }
        names = [f"{PARTS[part]}:{number}" for number in range(len(labels))]
        return ArraySource({"image": framed, "label": labels}, fields, names)


def recipe(size: Size = "small") -> Recipe:
    """Clothes in ten classes (Fashion-MNIST), by LeNet-5 in a few minutes, or by ResNets at larger sizes."""
    schedule = ScheduleConfig(name="cosine", warmup_epochs=1.0, warmup_from=0.1)
    if size == "small":
        return Recipe(
            task=Fashion(),
            data=DataConfig(batch=64),
            optimiser=OptimiserConfig(name="adam", learning_rate=4e-3),
            schedule=schedule,
            stop=StopConfig(epochs=15),
            checkpoint_epochs=1,
        )
    return Recipe(
        task=Fashion(size=size, shift=2 if size == "paper" else 0),
        data=DataConfig(batch=64),
        optimiser=OptimiserConfig(
            name="sgd",
            learning_rate=0.2 if size == "medium" else 0.05,
            nesterov=True,
            weight_decay=5e-4,
            decay_vectors=False,
        ),
        schedule=schedule,
        stop=StopConfig(epochs=30 if size == "paper" else 15),
        checkpoint_epochs=1,
    )


def _read_part(folder: Path, prefix: str) -> dict[str, NDArray[Any]]:
    """Images (N x 1 x H x W) and class numbers (N) of one part."""
    images, labels = (read_idx(_find(folder, f"{prefix}-{each}-ubyte")) for each in ("images-idx3", "labels-idx1"))
    if images.ndim != 3 or labels.shape != images.shape[:1] or labels.dtype != np.uint8 or images.dtype != np.uint8:
        raise DataError(
            f"{folder} holds {prefix} images {images.dtype} {images.shape} and labels {labels.dtype} {labels.shape}. "
            "Allowed: bytes, N x height x width and N. Give the folder of Fashion-MNIST's own files."
        )
    if labels.max(initial=0) >= len(CLASSES):
        raise DataError(f"{folder} holds {prefix} label {labels.max()}. Allowed: 0 to {len(CLASSES) - 1}.")
    return {"image": images[:, None], "label": labels.astype(np.int64)}


def _find(folder: Path, name: str) -> Path:
    for file in (folder / f"{name}.gz", folder / name):
        if file.is_file():
            return file
    raise DataError(
        f"there is no {folder / name}[.gz]. Install Fashion-MNIST with: apt-get install dataset-fashion-mnist. Or give "
        "the folder of its four IDX files: task.folder=DIR"
    )
