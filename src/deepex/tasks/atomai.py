"""AtomAI: which crystal made this diffraction pattern? ResNet-50 on convergent-beam electron diffraction.

27 crystals, at thicknesses, tilts, defoci, probe positions, convergence angles and doses that vary. Patterns of one
probe at several thicknesses resemble each other, so whole probes are held back for validation.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from deepex.data import DataConfig, Preparation, Splits
from deepex.data.feeding.augment import Flip
from deepex.data.feeding.convert import Convert
from deepex.data.packing.packed import PackedSource
from deepex.models.resnet import ResNet50
from deepex.optim import OptimiserConfig, ScheduleConfig
from deepex.record.illustration import Illustration
from deepex.sample import Batch
from deepex.tasks.classes import Answers, class_errors, class_loss, illustrate_classes
from deepex.tasks.data.atomai import AtomaiData
from deepex.tasks.data.packed_set import open_set, split_set
from deepex.tasks.network import build_network, check_network, locate_network
from deepex.train.recipe import Recipe, StopConfig
from deepex.train.task import Loss, Tally, Target

Size = Literal["small", "medium", "paper"]


@dataclass(frozen=True, kw_only=True)
class Atomai:
    """The task. `file` is a packed data set of patterns; none: data/atomai_SIZE.h5, made if it is not there.

    `network` is one of your own, `file.py:name`, called with `shape` and `classes`; none: ResNet-50. `shape` and
    `classes` are those of the patterns; none: as in the file.
    """

    name: Literal["atomai"] = "atomai"
    size: Size = "small"
    file: str | None = None
    network: str | None = None
    shape: tuple[int, ...] | None = None
    classes: int | None = None

    def __post_init__(self) -> None:
        check_network(self.network)

    @property
    def target(self) -> Target:
        """The share of patterns that are taken for another crystal's; both figures are the paper's."""
        return Target(metric="error", threshold=0.1, cutoffs=(0.2,))

    @property
    def making(self) -> AtomaiData:
        return AtomaiData.of_size(self.size)

    @property
    def path(self) -> Path:
        return Path("data") / f"atomai_{self.size}.h5" if self.file is None else Path(self.file)

    @cached_property
    def source(self) -> PackedSource:
        advice = "Make a file with: deepex data make atomai"
        return open_set(self.path, fields=("image", "label", "validation"), advice=advice)

    def data(self) -> Splits:
        """Patterns of training probes and of held-out probes; mirrored ones are as good."""
        preparation = Preparation(convert={"image": self._convert}, augment=[Flip(fields=("image",))])
        return split_set(self.source, self.source.column("validation").astype(bool), preparation)

    def model(self) -> nn.Module:
        channels, height, width = self.shape or self._shape
        classes = self.classes or len(self._crystals)
        if self.network is not None:
            return build_network(self.network, shape=(channels, height, width), classes=classes)
        return ResNet50(shape=(channels, height, width), classes=classes)

    def resolved(self) -> "Atomai":
        network = locate_network(self.network)
        return replace(self, shape=self._shape, classes=len(self._crystals), network=network)

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.source.spec.fields["image"].shape

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        return class_loss(model, batch)

    def evaluate(self, model: nn.Module, batch: Batch) -> Tally:
        return class_errors(model, batch)

    def illustrate(self, model: nn.Module, train: Batch, validation: Batch) -> Illustration:
        """Held-out patterns with the crystals they are taken for, and which crystals are taken for which."""

        def show(images: Tensor) -> NDArray[np.float32]:
            return np.clip(self._convert.undo(images.numpy()) / 255, 0, 1)

        return illustrate_classes(Answers.ask(model, validation, self._crystals), validation["image"], show)

    @property
    def _crystals(self) -> tuple[str, ...]:
        return self.source.spec.fields["label"].classes

    @cached_property
    def _convert(self) -> Convert:
        return Convert.z_score(self.source.moments["image"])


def recipe(size: Size = "small") -> Recipe:
    """Which of 27 crystals made an electron-diffraction pattern, by ResNet-50 in about an hour."""
    return Recipe(
        task=Atomai(size=size),
        data=DataConfig(batch=32),
        optimiser=OptimiserConfig(
            name="sgd", learning_rate=0.05, nesterov=True, weight_decay=5e-4, decay_vectors=False
        ),
        schedule=ScheduleConfig(name="cosine", warmup_epochs=0.3, warmup_from=0.1),
        stop=StopConfig(epochs=3),
        checkpoint_epochs=1,
    )
