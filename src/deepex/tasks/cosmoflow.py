"""CosmoFlow: the parameters of a universe from the distribution of its dark matter at four redshifts.

The network and rules are the benchmark's; the universes are our own simulations, in boxes larger than the cubes cut
from them. What a cosmologist would do first, a regression on the power spectrum, is the baseline.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from deepex.data import DataConfig, Preparation, Splits
from deepex.data.feeding.augment import CubeSymmetry
from deepex.data.feeding.convert import Convert
from deepex.data.packing.packed import PackedSource
from deepex.data.source import allocate
from deepex.errors import ConfigError
from deepex.models.cosmoflow import CosmoFlow
from deepex.optim import OptimiserConfig, ScheduleConfig
from deepex.record.illustration import Illustration, ImageGrid, Picture, Scatter, ScatterPanel
from deepex.sample import Batch, SampleSpec
from deepex.science.cosmology import power_baseline
from deepex.science.cosmology.universe import PARAMETERS, RANGES
from deepex.tasks.data.cosmoflow import CHANNELS, CosmoflowData
from deepex.tasks.data.packed_set import open_set, split_set
from deepex.tasks.network import build_network, check_network, locate_network
from deepex.train.recipe import Recipe, StopConfig
from deepex.train.task import Loss, Tally, Target

Size = Literal["small", "medium", "paper"]
AT_ONCE = 16  # cubes a forward, when pictures are made
SHOWN = 3  # universes whose density is drawn
MEASURED = 64  # cubes, of as many boxes if there are, whose mean and deviation stand for all
WORDS = {"omega_m": "Ω_m", "sigma_8": "σ_8", "n_s": "n_s", "hubble": "h"}
SMALL_TARGET = 0.32  # the power spectrum's regression has 0.363 on the small set (docs/science/cosmoflow.md)
BENCHMARK_TARGET = 0.124  # MLPerf HPC's, at 128 cells a side and half a million cubes


@dataclass(frozen=True, kw_only=True)
class Cosmoflow:
    """The task. `file` is a packed data set of cubes; none: data/cosmoflow_SIZE.h5, made if it is not there.

    `symmetries` shows each cube turned and mirrored in one of 48 ways, anew in each epoch; `standardise` brings
    log(1 + counts) to mean 0 and deviation 1 at each redshift, which the benchmark does not. `network` is one of your
    own, `file.py:name`, called with `shape` and `outputs`; none: the benchmark's. `shape` is that of the cubes; none:
    as in the file.
    """

    name: Literal["cosmoflow"] = "cosmoflow"
    size: Size = "small"
    file: str | None = None
    symmetries: bool = True
    standardise: bool = False
    dropout: float = 0.5
    network: str | None = None
    shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"task.dropout = {self.dropout}. Allowed: numbers from 0 to below 1.")
        check_network(self.network)

    @property
    def target(self) -> Target:
        """Mean absolute error over the four parameters, each scaled to [-1, 1] over its range."""
        return Target(metric="mae", threshold=BENCHMARK_TARGET if self.size == "paper" else SMALL_TARGET)

    @property
    def making(self) -> CosmoflowData:
        return CosmoflowData.of_size(self.size)

    @property
    def path(self) -> Path:
        return Path("data") / f"cosmoflow_{self.size}.h5" if self.file is None else Path(self.file)

    @cached_property
    def source(self) -> PackedSource:
        fields = ("counts", "target", "power", "box", "validation")
        return open_set(self.path, fields=fields, advice="Make a file with: deepex data make cosmoflow")

    def data(self) -> Splits:
        """Cubes of training boxes and of held-out boxes, as log(1 + counts)."""
        preparation = Preparation(
            convert={"counts": self._convert},
            augment=[CubeSymmetry(fields=("counts",))] if self.symmetries else [],
        )
        return split_set(self.source, self.source.column("validation").astype(bool), preparation)

    def model(self) -> nn.Module:
        channels, depth, height, width = self.shape or self._shape
        if self.network is not None:
            return build_network(self.network, shape=(channels, depth, height, width), outputs=len(PARAMETERS))
        return CosmoFlow(shape=(channels, depth, height, width), outputs=len(PARAMETERS), dropout=self.dropout)

    def resolved(self) -> "Cosmoflow":
        return replace(self, shape=self._shape, network=locate_network(self.network))

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.source.spec.fields["counts"].shape

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        return Loss(total=functional.mse_loss(model(batch["counts"]), batch["target"]))

    def evaluate(self, model: nn.Module, batch: Batch) -> Tally:
        """The mean absolute error of all parameters, and of each beside it."""
        errors = (model(batch["counts"]).float() - batch["target"]).abs().sum(dim=0, dtype=torch.float64)
        return Tally(
            total=float(errors.mean()),
            count=len(batch["target"]),
            beside={f"mae_{name}": float(error) for name, error in zip(PARAMETERS, errors, strict=True)},
        )

    def illustrate(self, model: nn.Module, train: Batch, validation: Batch) -> Illustration:
        """Predicted against true parameters in physical units, beside the baseline, and the density behind them."""
        truth = to_physical(validation["target"].numpy())
        predicted = to_physical(_predict(model, validation["counts"]))
        errors = dict(zip(PARAMETERS, np.abs(predicted - truth).mean(axis=0).tolist(), strict=True))
        baseline = self.baseline_errors()
        better = [WORDS[name] for name in PARAMETERS if errors[name] < baseline[name]]
        sentence = (
            f"The network's mean error is {_listed(errors)}; that of a ridge regression on the power spectra of the "
            f"same cubes is {_listed(baseline)}. The network is better in {', '.join(better) or 'none of them'}."
        )
        counts = self._convert.undo(validation["counts"].numpy())
        pictures: list[Picture] = [_scatter(truth, predicted, errors, baseline), _density(counts, truth, predicted)]
        findings = {f"mae_{name}": value for name, value in errors.items()}
        findings |= {f"baseline_mae_{name}": value for name, value in baseline.items()}
        return Illustration(findings=findings, sentence=sentence, pictures=pictures)

    @cached_property
    def _convert(self) -> Convert:
        if not self.standardise:
            return Convert(log1p=True)
        training = np.flatnonzero(self.source.column("validation") == 0)
        some = training[np.linspace(0, len(training) - 1, min(MEASURED, len(training))).astype(int)]
        counts = allocate(SampleSpec(fields={"counts": self.source.spec.fields["counts"]}), len(some))
        self.source.read(some, counts)
        logarithm = torch.log1p(counts["counts"].double())
        deviation, mean = torch.std_mean(logarithm, dim=(0, 2, 3, 4))
        return Convert(log1p=True, shift=tuple(mean.tolist()), scale=tuple(deviation.clamp_min(1e-6).tolist()))

    def baseline_errors(self) -> dict[str, float]:
        """The mean absolute error of the baseline on held-out boxes, in physical units."""
        power, target = (self.source.column(name) for name in ("power", "target"))
        held_back = self.source.column("validation").astype(bool)
        predicted = self.fit_baseline().predict(power[held_back])
        errors = np.abs(to_physical(predicted) - to_physical(target[held_back])).mean(axis=0)
        return dict(zip(PARAMETERS, errors.tolist(), strict=True))

    def fit_baseline(self) -> power_baseline.PowerBaseline:
        """The regression on the power spectra of the training boxes."""
        training = self.source.column("validation") == 0
        power, target, box = (self.source.column(name)[training] for name in ("power", "target", "box"))
        return power_baseline.fit(power, target, box)

    def predict(self, model: nn.Module, counts: NDArray[Any]) -> NDArray[np.float32]:
        """Parameters, scaled to [-1, 1], of cubes as they are stored (N x redshifts x D x H x W)."""
        converted = np.empty(counts.shape, dtype=self._convert.dtype)
        self._convert.apply(counts, converted)
        return _predict(model, torch.from_numpy(converted))


def recipe(size: Size = "small") -> Recipe:
    """Four parameters of a universe from its dark matter, by CosmoFlow's network in 40 minutes."""
    benchmark = ScheduleConfig(
        name="steps", warmup_epochs=4.0, warmup_from=0.25, milestones=(32.0, 64.0), factors=(0.25, 0.5)
    )
    if size == "paper":
        return Recipe(
            task=Cosmoflow(size=size),
            data=DataConfig(batch=1),
            optimiser=OptimiserConfig(name="sgd", learning_rate=1e-3, momentum=0.9),
            schedule=benchmark,
            stop=StopConfig(epochs=128),
            checkpoint_epochs=1,
        )
    return Recipe(
        task=Cosmoflow(size=size, standardise=True, dropout=0.0),
        data=DataConfig(batch=16),
        optimiser=OptimiserConfig(name="muon", learning_rate=0.01, momentum=0.95),
        schedule=ScheduleConfig(name="cosine", warmup_epochs=0.125),
        stop=StopConfig(epochs=8, at_target=False),
        checkpoint_epochs=1,
    )


def to_physical(scaled: NDArray[Any]) -> NDArray[np.float64]:
    """Parameters (N x 4) from what is scaled to [-1, 1] over their ranges."""
    low, high = np.array([RANGES[name] for name in PARAMETERS]).T
    return np.asarray(low + (scaled.astype(np.float64) + 1) / 2 * (high - low))


def _predict(model: nn.Module, counts: Tensor) -> NDArray[np.float32]:
    model.eval()
    with torch.no_grad():
        return torch.cat([model(part).float() for part in torch.split(counts, AT_ONCE)]).numpy()


def _listed(errors: Mapping[str, float]) -> str:
    return ", ".join(f"{value:.4f} in {WORDS[name]}" for name, value in errors.items())


def _scatter(
    truth: NDArray[np.float64],
    predicted: NDArray[np.float64],
    errors: Mapping[str, float],
    baseline: Mapping[str, float],
) -> Scatter:
    return Scatter(
        title="Predicted and true parameters",
        caption="A point is a cube of a universe that the network never saw; on the dashed line both are equal.",
        panels=[
            ScatterPanel(
                name=WORDS[name],
                true=truth[:, place].astype(np.float32),
                predicted=predicted[:, place].astype(np.float32),
                note=f"mean error {errors[name]:.4f}; of the power spectrum's regression {baseline[name]:.4f}",
            )
            for place, name in enumerate(PARAMETERS)
        ],
    )


def _density(counts: NDArray[Any], truth: NDArray[np.float64], predicted: NDArray[np.float64]) -> ImageGrid:
    """A slab through universes with little, middling and much matter, from early to late."""
    chosen = np.argsort(truth[:, 0])[np.linspace(0, len(truth) - 1, min(SHOWN, len(truth))).astype(int)]
    slabs = counts[chosen]  # N x redshifts x D x H x W
    depth = max(1, slabs.shape[2] // 8)
    maps = np.log1p(slabs[:, :, :depth].sum(axis=2).clip(min=0))
    span = float(maps.max())
    return ImageGrid(
        title="The dark matter behind it",
        caption=f"Slabs of {depth} cells through held-out cubes, from early to late, all on one logarithmic scale: "
        "dark is dense, and structure grows. Below, what the network found and what is true.",
        names=CHANNELS,
        images=maps / max(span, 1e-6),
        labels=[
            "\n".join(
                f"{WORDS[name]} {predicted[row, place]:.3f} (true {truth[row, place]:.3f})"
                for place, name in enumerate(PARAMETERS)
            )
            for row in chosen.tolist()
        ],
    )
