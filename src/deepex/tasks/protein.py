"""Protein folding: a variational autoencoder learns the states of a small protein from its contact maps.

Frames of molecular dynamics become 28 x 28 maps of which C-alpha atoms touch; three latent variables must tell them
apart. Whole trajectories are held back for validation.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from deepex.data import DataConfig, Preparation, Splits
from deepex.data.feeding.convert import Convert
from deepex.data.packing.packed import PackedSource
from deepex.errors import ConfigError, DataError
from deepex.models.cvae import CVAE
from deepex.optim import OptimiserConfig
from deepex.record.illustration import Illustration, ImageGrid, Picture, PointCloud
from deepex.sample import Batch
from deepex.tasks.data.packed_set import open_set, split_set
from deepex.train.recipe import Recipe, StopConfig
from deepex.train.task import Loss, Tally, Target

PACKAGED = "bba.h5"


@dataclass(frozen=True, kw_only=True)
class Protein:
    """The task. `file` is a packed data set with contact maps; none stands for the one in the package.

    `side` is that of the maps; none: as in the file.
    """

    name: Literal["protein"] = "protein"
    size: Literal["small", "paper"] = "small"
    latent: int = 3
    kl_weight: float = 1.0
    file: str | None = None
    side: int | None = None

    def __post_init__(self) -> None:
        if self.latent < 1:
            raise ConfigError(f"task.latent = {self.latent}. Allowed: whole numbers from 1; the page draws 3.")

    @property
    def target(self) -> Target:
        return Target(metric="rmse", threshold=0.1645)  # docs/science/protein.md says how it was chosen

    @property
    def path(self) -> Path:
        return packaged_file() if self.file is None else Path(self.file)

    @cached_property
    def source(self) -> PackedSource:
        if self.file is not None and not Path(self.file).exists():
            raise DataError(
                f"there is no data file {self.file}. Make one with: deepex data make protein --out {self.file}"
            )
        advice = "Make a file with: deepex data make protein"
        source = open_set(self.path, fields=("contact_map", "trajectory"), advice=advice)
        if "trajectories" not in source.attributes:
            raise DataError(f"{self.path} has no trajectories attribute. {advice}")
        return source

    def data(self) -> Splits:
        """Training and validation frames, split by trajectory."""
        trajectory = self.source.column("trajectory")
        held_back = [i for i, t in enumerate(self.source.attributes["trajectories"]) if t["validation"]]
        return split_set(self.source, np.isin(trajectory, held_back), Preparation(convert={"contact_map": Convert()}))

    def model(self) -> nn.Module:
        return CVAE(side=self.side or self._side, latent=self.latent, size=self.size)

    def resolved(self) -> "Protein":
        return replace(self, side=self._side)

    @property
    def _side(self) -> int:
        return self.source.spec.fields["contact_map"].shape[0]

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """Cross-entropy of the contacts plus the divergence of q(z|x) from a standard normal, a map."""
        maps = batch["contact_map"]
        logits, mean, log_variance = model(maps)
        cross_entropy = functional.binary_cross_entropy_with_logits(logits, maps, reduction="sum") / len(maps)
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum() / len(maps)
        return Loss(
            total=cross_entropy + self.kl_weight * divergence,
            parts={"reconstruction": cross_entropy, "divergence": divergence},
        )

    def evaluate(self, model: nn.Module, batch: Batch) -> Tally:
        """Root-mean-square error between contact probabilities and contacts, over all elements of the maps."""
        maps = batch["contact_map"]
        error = torch.sigmoid(model(maps)[0]) - maps
        return Tally(total=float(error.square().sum(dtype=torch.float64)), count=error.numel(), root=True)

    def illustrate(self, model: nn.Module, train: Batch, validation: Batch) -> Illustration:
        """True and reconstructed maps, the latent space, and what a straight line through it tells of the folding."""
        network = cast(CVAE, model.eval())
        with torch.no_grad():
            known = network.encode(train["contact_map"])[0].numpy()
            unseen = network.encode(validation["contact_map"])[0].numpy()
        explained = linear_probe(known, train["native_fraction"].numpy(), unseen, validation["native_fraction"].numpy())
        sentence = (
            f"A straight line through the {self.latent} latent variables, fitted on training trajectories, explains "
            f"{100 * explained:.0f} % of the variance of the fraction of native contacts on held-out trajectories."
        )
        pictures: list[Picture] = [_reconstructions(network, validation)]
        if self.latent == 3:
            pictures.append(_latent_space(unseen, validation))
        return Illustration(findings={"native_fraction_r2": explained}, sentence=sentence, pictures=pictures)


def recipe(size: Literal["small", "paper"] = "small") -> Recipe:
    """The states of a small protein from its contact maps, by an autoencoder in about a minute."""
    return Recipe(
        task=Protein(size=size),
        data=DataConfig(batch=128),
        optimiser=OptimiserConfig(name="adam", learning_rate=1e-3),
        stop=StopConfig(epochs=60),
    )


def packaged_file() -> Path:
    """The data set in the package."""
    return Path(str(resources.files("deepex.tasks") / "files" / PACKAGED))


def linear_probe(
    known: NDArray[np.float32],
    known_values: NDArray[np.float32],
    unseen: NDArray[np.float32],
    values: NDArray[np.float32],
) -> float:
    """R squared, on unseen samples, of a least-squares line from latent variables (N x latent) to a quantity (N)."""
    if not values.var():
        return 0.0  # nothing varies, so nothing is explained
    weights, *_ = np.linalg.lstsq(_with_one(known), known_values.astype(np.float64))
    residual = values - _with_one(unseen) @ weights
    return float(1.0 - np.square(residual).mean() / values.var())


def _with_one(points: NDArray[np.float32]) -> NDArray[np.float64]:
    return np.column_stack([points, np.ones(len(points))]).astype(np.float64)


def _reconstructions(model: CVAE, frames: Batch, count: int = 6) -> ImageGrid:
    """Frames from the least to the most folded, with what the model makes of them."""
    order = torch.argsort(frames["native_fraction"])
    chosen = order[torch.linspace(0, len(order) - 1, count).long()]
    maps = frames["contact_map"][chosen]
    with torch.no_grad():
        probability: Tensor = torch.sigmoid(model(maps)[0])
    labels = [
        f"{100 * float(frames['native_fraction'][i]):.0f} % native, {float(frames['temperature'][i]):.0f} K"
        for i in chosen
    ]
    return ImageGrid(
        title="Contact maps and their reconstructions",
        caption="Held-out frames from unfolded to folded. Dark: these two residues touch (C-alpha atoms within 8 Å).",
        names=("simulated", "reconstructed from 3 numbers" if model.mean.out_features == 3 else "reconstructed"),
        images=torch.stack([maps, probability], dim=1).numpy(),
        labels=labels,
    )


def _latent_space(points: NDArray[np.float32], frames: Batch) -> PointCloud:
    colours = {
        "fraction of native contacts": frames["native_fraction"].numpy(),
        "RMSD to the folded structure (Å)": frames["rmsd"].numpy(),
        "temperature (K)": frames["temperature"].numpy(),
        "radius of gyration (Å)": frames["radius_of_gyration"].numpy(),
    }
    return PointCloud(
        title="The latent space",
        caption="Each point is a frame of a trajectory that the model never saw. Turn it: states lie apart.",
        axes=("z1", "z2", "z3"),
        points=points,
        colours=colours,
    )
