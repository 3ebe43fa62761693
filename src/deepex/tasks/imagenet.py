"""ImageNet: photographs in up to a thousand classes, by AlexNet, VGG-16 or ResNet-50.

The images are the user's own tree, packed once; nothing is downloaded.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from deepex.data import DataConfig, Preparation, Splits
from deepex.data.feeding.augment import Crop, Flip
from deepex.data.feeding.convert import Convert
from deepex.data.packing.packed import PackedSource
from deepex.errors import ConfigError
from deepex.models.alexnet import AlexNet
from deepex.models.resnet import ResNet50
from deepex.models.vgg import VGG16
from deepex.optim import OptimiserConfig, ScheduleConfig
from deepex.record.illustration import Illustration
from deepex.sample import Batch
from deepex.tasks.classes import Answers, class_errors, class_loss, illustrate_classes
from deepex.tasks.data.imagenet import ImagenetData, missing_tree
from deepex.tasks.data.packed_set import open_set, split_set
from deepex.tasks.network import build_network, check_network, locate_network
from deepex.train.recipe import Recipe, StopConfig
from deepex.train.task import Loss, Tally, Target

Size = Literal["small", "medium", "paper"]
NETWORKS: dict[str, Callable[..., nn.Module]] = {"alexnet": AlexNet, "vgg16": VGG16, "resnet50": ResNet50}
# Top-1 error of one middle crop, as the networks are known to reach with all classes (docs/science/imagenet.md).
KNOWN_ERRORS: dict[str, float] = {"alexnet": 0.435, "vgg16": 0.285, "resnet50": 0.241}
FEW_CLASSES_ERROR = 0.25


@dataclass(frozen=True, kw_only=True)
class Imagenet:
    """The task. `folder` is a tree train/CLASS/*.JPEG and val/CLASS/*.JPEG; sizes are 10, 100 or all of its classes.

    Images are packed once, with `stored_side` pixels a side, into `file` (none: data/imagenet_SIZE.h5). Training sees
    windows of `side` pixels anywhere in them, mirrored or not, evaluation the middle. `network` is alexnet, vgg16,
    resnet50, or one of your own, `file.py:name`, called with `shape` and `classes`. `classes` is their number; none: as
    in the file.
    """

    name: Literal["imagenet"] = "imagenet"
    size: Size = "small"
    network: str = "resnet50"
    folder: str | None = None
    file: str | None = None
    side: int = 224
    stored_side: int = 256
    smoothing: float = 0.1
    classes: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.side <= self.stored_side:
            raise ConfigError(
                f"task.side = {self.side} with task.stored_side = {self.stored_side}. Allowed: whole numbers from 1 to "
                "the stored side."
            )
        if not 0 <= self.smoothing < 1:
            raise ConfigError(f"task.smoothing = {self.smoothing}. Allowed: numbers from 0 to below 1.")
        check_network(self.network, tuple(NETWORKS))

    @property
    def target(self) -> Target:
        """Top-1 error on the images of val."""
        known = KNOWN_ERRORS.get(self.network) if self.size == "paper" else FEW_CLASSES_ERROR
        return Target(metric="error", threshold=known)

    @property
    def path(self) -> Path:
        return Path("data") / f"imagenet_{self.size}.h5" if self.file is None else Path(self.file)

    @property
    def making(self) -> ImagenetData:
        if self.folder is None:
            raise missing_tree(self.path)
        return replace(ImagenetData.of_size(self.size), folder=self.folder, side=self.stored_side)

    @cached_property
    def source(self) -> PackedSource:
        if not self.path.exists():
            raise missing_tree(self.path)
        advice = "Pack a tree of images with: deepex data make imagenet folder=ROOT"
        return open_set(self.path, fields=("image", "label", "validation"), advice=advice)

    def data(self) -> Splits:
        """Images of train and of val."""
        window = Crop(fields=("image",), size=(self.side, self.side))
        preparation = Preparation(
            convert={"image": self._convert}, augment=[window, Flip(fields=("image",), axes=(-1,))]
        )
        return split_set(self.source, self.source.column("validation").astype(bool), preparation)

    def model(self) -> nn.Module:
        sizes: dict[str, Any] = {"shape": (3, self.side, self.side), "classes": self.classes or self._classes}
        if self.network not in NETWORKS:
            return build_network(self.network, **sizes)
        return NETWORKS[self.network](**sizes)

    def resolved(self) -> "Imagenet":
        return replace(self, classes=self._classes, network=locate_network(self.network) or self.network)

    @property
    def _classes(self) -> int:
        return len(self.source.spec.fields["label"].classes)

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        return class_loss(model, batch, self.smoothing)

    def evaluate(self, model: nn.Module, batch: Batch) -> Tally:
        return class_errors(model, batch)

    def illustrate(self, model: nn.Module, train: Batch, validation: Batch) -> Illustration:
        """Photographs with their top five and, for few classes, which are taken for which."""
        words = self.source.attributes.get("words", {})
        names = [words.get(name, name) for name in self.source.spec.fields["label"].classes]

        def show(images: Tensor) -> NDArray[np.uint8]:
            stored = self._convert.undo(images.numpy()).round().clip(0, 255).astype(np.uint8)
            return stored.transpose(0, 2, 3, 1)[:, None]

        return illustrate_classes(Answers.ask(model, validation, names), validation["image"], show)

    @cached_property
    def _convert(self) -> Convert:
        return Convert.z_score(self.source.moments["image"])


def recipe(size: Size = "small") -> Recipe:
    """Your own tree of photographs in classes, by ResNet-50, VGG-16 or AlexNet."""
    return Recipe(
        task=Imagenet(size=size),
        data=DataConfig(batch=32),
        optimiser=OptimiserConfig(
            name="sgd", learning_rate=0.0125, nesterov=True, weight_decay=1e-4, decay_vectors=False
        ),
        schedule=ScheduleConfig(name="cosine", warmup_epochs=5.0, warmup_from=0.1),
        stop=StopConfig(epochs=90 if size == "paper" else 60),
        checkpoint_epochs=1,
    )
