"""Cubes of dark matter for CosmoFlow, as the particle mesh makes them.

A periodic box is simulated and cut into cubes, so that each cube feels waves longer than itself. Sample i is a function
of the settings and i alone; the cubes of one box are in training or in validation, never in both.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deepex.data.source import Indices
from deepex.errors import ConfigError, unknown
from deepex.sample import Batch, Field, SampleSpec
from deepex.science.cosmology.density_field import logarithmic_edges, measure_power
from deepex.science.cosmology.particle_mesh import MAX_STEP, REDSHIFTS, START_REDSHIFT, Box, simulate
from deepex.science.cosmology.universe import OMEGA_BARYON, PARAMETERS, RANGES, Cosmology, draw
from deepex.tasks.data.make import SampleMaker

SIZES = {"small": (900, 32), "medium": (1800, 64), "paper": (73_728, 128)}  # boxes, and cells of a cube's side
CHANNELS = tuple(f"z={z:g}" for z in REDSHIFTS)
POWER_BINS = 10
VALIDATION_EVERY = 9  # boxes; an odd number, so that what is held back fills the ranges as evenly as the rest
SECONDS_AT_64 = 0.95  # measured, a box of 64 cells a side on one core; 9.8 with 128
KEEP_BYTES = 16 << 20  # of boxes just simulated
MOST_BOXES = 99_999  # as many fit the names


@dataclass(frozen=True, kw_only=True)
class CosmoflowData(SampleMaker):
    """A data set of cubes.

    Arguments:
        boxes: universes, each with parameters and a field of its own; every ninth is for validation.
        cube: cells a side of a sample.
        box: cells a side of what is simulated, a multiple of `cube`; its particles are as many.
        cell_mpc: a cell's side in Mpc/h.
        seed: another one gives other universes.

    >>> CosmoflowData(boxes=18, cube=32, box=64).group
    8
    """

    boxes: int
    cube: int = 32
    box: int = 64
    cell_mpc: float = 4.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not VALIDATION_EVERY <= self.boxes <= MOST_BOXES:
            raise ConfigError(
                f"boxes = {self.boxes}. Allowed: {VALIDATION_EVERY}, so that one is for validation, to {MOST_BOXES}."
            )
        if self.seed < 0:
            raise ConfigError(f"seed = {self.seed}. Allowed: whole numbers from 0.")
        if self.cube < 8 or self.cube % 2 or self.box < self.cube or self.box % self.cube:
            raise ConfigError(
                f"cubes of {self.cube} cells from a box of {self.box}. Allowed: an even cube of 8 cells or more, and a "
                f"box that is 1, 2, 3, ... times as wide, as in cube = 32, box = 64."
            )
        logarithmic_edges(self.cube, POWER_BINS)
        Box(cells=self.box, cell_mpc=self.cell_mpc)

    @classmethod
    def of_size(cls, size: str) -> "CosmoflowData":
        """Cubes of 32, 64 or 128 cells from boxes twice as wide; at the paper's size as many as the benchmark's."""
        if size not in SIZES:
            raise ConfigError(unknown("size", size, SIZES))
        boxes, cube = SIZES[size]
        return cls(boxes=boxes, cube=cube, box=2 * cube)

    @property
    def group(self) -> int:
        """Cubes of a box, which are simulated together."""
        return (self.box // self.cube) ** 3

    @property
    def core_seconds(self) -> float:
        """What simulating takes on one core, roughly."""
        wider = self.box / 64
        # A larger box leaves the cache: 128 cells take 10.3 times as long as 64, not 8.
        return self.boxes * SECONDS_AT_64 * wider**3 * max(0.5, 1.0 + 0.3 * float(np.log2(wider)))

    def source(self) -> "CosmoflowSource":
        return CosmoflowSource(self)

    def attributes(self) -> dict[str, Any]:
        """Where the samples come from, for the data file."""
        return {
            "title": "Particle counts of dark matter at four redshifts, by a particle mesh from Gaussian fields",
            "settings": asdict(self),
            "parameters": list(PARAMETERS),
            "ranges": {name: list(limits) for name, limits in RANGES.items()},
            "omega_baryon": OMEGA_BARYON,
            "redshifts": list(REDSHIFTS),
            "start_redshift": START_REDSHIFT,
            "largest_step_in_scale_factor": MAX_STEP,
            "power_edges_waves_a_cube": logarithmic_edges(self.cube, POWER_BINS).tolist(),
            "versions": {name: metadata.version(name) for name in ("deepex", "numpy", "torch")},
        }


class CosmoflowSource:
    """The cubes of a data set, simulated as they are read.

    The last boxes are kept, so that reading a box's cubes one after the other simulates it once.
    """

    def __init__(self, settings: CosmoflowData) -> None:
        self.settings = settings
        self.spec = SampleSpec(fields=_fields(settings))
        self._edges = logarithmic_edges(settings.cube, POWER_BINS)
        self._kept: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return self.settings.boxes * self.settings.group

    def name(self, index: int) -> str:
        box, cube = divmod(index, self.settings.group)
        return f"box{box:05d}/cube{cube}"

    def universe(self, box: int) -> Cosmology:
        """The parameters of a box."""
        return draw(seed=self.settings.seed, number=box)

    def read(self, indices: Indices, out: Batch) -> None:
        places: dict[int, list[tuple[int, int]]] = {}
        for place, index in enumerate(indices):
            box, cube = divmod(int(index), self.settings.group)
            places.setdefault(box, []).append((place, cube))
        for box, cubes in places.items():
            self._fill(box, cubes, out)

    def _fill(self, box: int, cubes: list[tuple[int, int]], out: Batch) -> None:
        """Write the cubes of one box, each (place in the batch, cube of the box)."""
        rows = torch.tensor([place for place, _ in cubes])
        for name, value in self._labels(box).items():
            if name in out:
                out[name][rows] = torch.as_tensor(value, dtype=out[name].dtype)
        if "counts" not in out and "power" not in out:
            return
        counts = self._counts(box)
        for place, cube in cubes:
            part = self._cut(counts, cube)
            if "counts" in out:
                out["counts"][place] = part
            if "power" in out:
                out["power"][place] = torch.from_numpy(self._power(part)).float()

    def _labels(self, box: int) -> Mapping[str, Any]:
        universe = self.universe(box)
        return {
            "parameters": universe.values,
            "target": universe.scaled,
            "box": box,
            "validation": int(box % VALIDATION_EVERY == VALIDATION_EVERY - 1),
        }

    def _counts(self, box: int) -> Tensor:
        kept = self._kept.get(box)
        if kept is not None:
            return kept
        volume = Box(cells=self.settings.box, cell_mpc=self.settings.cell_mpc)
        counts = simulate(self.universe(box), volume, seed=(self.settings.seed, box))
        room = max(1, KEEP_BYTES // (counts.numel() * counts.element_size()))
        for oldest in list(self._kept)[: max(0, len(self._kept) + 1 - room)]:
            self._kept.pop(oldest, None)  # another thread may have been quicker
        self._kept[box] = counts
        return counts

    def _cut(self, counts: Tensor, cube: int) -> Tensor:
        cells, wide = self.settings.cube, self.settings.box // self.settings.cube
        x, y, z = (cells * int(i) for i in np.unravel_index(cube, (wide, wide, wide)))
        return counts[:, x : x + cells, y : y + cells, z : z + cells]

    def _power(self, counts: Tensor) -> np.ndarray[Any, np.dtype[np.float64]]:
        numbers = counts.float()
        # An empty cube has no contrast; its power is 0.
        mean = numbers.mean(dim=(1, 2, 3), keepdim=True).clamp_min(1e-30)
        return measure_power(numbers / mean - 1.0, cell_mpc=self.settings.cell_mpc, edges=self._edges).power

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": {}}


def _fields(settings: CosmoflowData) -> dict[str, Field]:
    cube = settings.cube
    return {
        "counts": Field(
            shape=(len(CHANNELS), cube, cube, cube),
            dtype="int16",
            description=f"particles in cells of {settings.cell_mpc:g} Mpc/h, 1 in the mean of a box",
            channels=CHANNELS,
        ),
        "parameters": Field(shape=(len(PARAMETERS),), dtype="float32", channels=PARAMETERS, description="cosmology"),
        "target": Field(
            shape=(len(PARAMETERS),),
            dtype="float32",
            channels=PARAMETERS,
            description="the parameters, mapped to [-1, 1] over their ranges",
        ),
        "power": Field(
            shape=(len(CHANNELS), POWER_BINS),
            dtype="float32",
            unit="(Mpc/h)^3",
            channels=CHANNELS,
            description="power spectrum of this cube alone, as it is: no window divided out, no noise subtracted",
        ),
        "box": Field(shape=(), dtype="int32", description="number of the simulated box"),
        "validation": Field(shape=(), dtype="uint8", description="1 if the box is held back from training"),
    }
