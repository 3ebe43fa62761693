"""The data set of AtomAI: diffraction patterns of up to 27 crystals, simulated probe by probe.

A probe is a pure function of (seed, crystal, probe number), so ranks may share the work in any way.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import metadata
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deepex.data.source import Indices
from deepex.errors import ConfigError, unknown
from deepex.sample import Batch, Field, SampleSpec
from deepex.science.diffraction.crystals import CRYSTALS, Crystal, build_crystal
from deepex.science.diffraction.microscope import Microscope, Probes, expose
from deepex.science.diffraction.multislice import Simulator, check_memory
from deepex.tasks.data.make import SampleMaker

SIZES = {"small": 1_000, "medium": 4_000, "paper": 27_000}  # probes of a crystal
PROBES_AT_ONCE = 40  # enough to keep matrix products busy
VALIDATION_EVERY = 10  # each tenth probe of a crystal is held back
TILT_CUT = 2.5  # standard deviations; beyond it, one crystal in 23, a tilt is drawn anew
MAX_CELL_ANGSTROM = 6.5  # of the 27 crystals, along the beam (PbTe)
BUILD_SECONDS, IMAGES_PER_SECOND = 5.5, 620.0  # one core, without AVX-512: a crystal's matrices, then its patterns


@dataclass(frozen=True, kw_only=True)
class AtomaiData(SampleMaker):
    """What to simulate: `crystals` x `probes_per_crystal` probes x `thicknesses` images, and in which ranges.

    Attributes:
        crystals: two or more of the 27, by name; the order of the class numbers.
        thicknesses: images of one probe, each at a thickness of its own; images of different probes tell more.
        semi_angle_mrad, defocus_angstrom, thickness_angstrom: drawn evenly between these two.
        tilt_sigma_mrad: of a normal distribution along each axis, cut at 2.5 of it in any direction.
        dose: electrons of the whole beam, drawn evenly in the logarithm between these two.
        pixel_mrad: what a pixel of the camera sees.
        box_angstrom, sampling_angstrom: of the waves, see `deepex.science.diffraction.microscope.Microscope`.
    """

    crystals: tuple[str, ...] = CRYSTALS
    probes_per_crystal: int = 27_000
    thicknesses: int = 1
    seed: int = 0
    semi_angle_mrad: tuple[float, float] = (4.0, 12.0)
    defocus_angstrom: tuple[float, float] = (-200.0, 200.0)
    tilt_sigma_mrad: float = 3.0
    thickness_angstrom: tuple[float, float] = (50.0, 500.0)
    dose: tuple[float, float] = (1e5, 1e7)
    pixel_mrad: float = 1.0
    box_angstrom: float = 20.0
    sampling_angstrom: float = 0.104

    def __post_init__(self) -> None:
        for name in self.crystals:
            if name not in CRYSTALS:
                raise ConfigError(unknown("crystal", name, CRYSTALS))
        if not 2 <= len(self.crystals) == len(set(self.crystals)):
            raise ConfigError(f"crystals = {','.join(self.crystals)}. Allowed: two or more, each named once.")
        for name in ("probes_per_crystal", "thicknesses"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)}. Allowed: whole numbers from 1.")
        if self.seed < 0:
            raise ConfigError(f"seed = {self.seed}. Allowed: whole numbers from 0.")
        for name in ("semi_angle_mrad", "defocus_angstrom", "thickness_angstrom", "dose"):
            low, high = getattr(self, name)
            if not -np.inf < low <= high < np.inf or (name != "defocus_angstrom" and low <= 0):
                allowed = "two numbers" if name == "defocus_angstrom" else "two numbers above 0"
                raise ConfigError(f"{name} = ({low}, {high}). Allowed: {allowed}, the smaller one first.")
        if self.thickness_angstrom[1] - self.thickness_angstrom[0] < MAX_CELL_ANGSTROM:
            raise ConfigError(
                f"thickness_angstrom = {self.thickness_angstrom}, but crystals grow by whole cells of up to "
                f"{MAX_CELL_ANGSTROM} angstrom. Allowed: two numbers at least so far apart."
            )
        _ = self.microscope  # which refuses angles that its grid does not hold

    @classmethod
    def of_size(cls, size: str) -> "AtomaiData":
        """27,000 patterns, four times as many, or the paper's 729,000."""
        if size not in SIZES:
            raise ConfigError(unknown("size", size, SIZES))
        return cls(probes_per_crystal=SIZES[size])

    @property
    def microscope(self) -> Microscope:
        return Microscope(
            max_semi_angle_mrad=self.semi_angle_mrad[1],
            max_tilt_mrad=TILT_CUT * self.tilt_sigma_mrad,
            min_thickness_angstrom=self.thickness_angstrom[0],
            max_thickness_angstrom=self.thickness_angstrom[1],
            pixel_mrad=self.pixel_mrad,
            box_angstrom=self.box_angstrom,
            sampling_angstrom=self.sampling_angstrom,
        )

    @property
    def group(self) -> int:
        """All samples of a crystal: whoever simulates them makes its matrices once."""
        return self.probes_per_crystal * self.thicknesses

    @property
    def core_seconds(self) -> float:
        return len(self.crystals) * (BUILD_SECONDS + self.probes_per_crystal * self.thicknesses / IMAGES_PER_SECOND)

    def source(self) -> "AtomaiSource":
        return AtomaiSource(self)

    def attributes(self) -> dict[str, Any]:
        """Where the data comes from, for the packed file."""
        return {
            "title": f"Convergent-beam electron diffraction of {len(self.crystals)} crystals, simulated by multislice",
            "settings": asdict(self),
            "microscope": asdict(self.microscope),
            "versions": {name: metadata.version(name) for name in ("abtem", "ase", "deepex", "numpy", "torch")},
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Draw:
    """What chance decided for one probe, and the generator that goes on to the noise of its pictures."""

    semi_angle_mrad: float
    defocus_angstrom: float
    tilt_mrad: NDArray[np.float64]
    position: NDArray[np.float64]  # in cell edges
    dose: float
    thickness_angstrom: NDArray[np.float64]
    generator: np.random.Generator


def draw_probe(data: AtomaiData, crystal: str, probe: int) -> Draw:
    """The probe of this number on this crystal; thicknesses are one in each of as many equal parts of the range."""
    generator = np.random.default_rng((data.seed, CRYSTALS.index(crystal), probe))
    tilt = generator.normal(scale=data.tilt_sigma_mrad, size=2)
    while np.hypot(*tilt) > TILT_CUT * data.tilt_sigma_mrad:
        tilt = generator.normal(scale=data.tilt_sigma_mrad, size=2)
    low, high = data.thickness_angstrom
    parts = (np.arange(data.thicknesses) + generator.random(data.thicknesses)) / data.thicknesses
    return Draw(
        semi_angle_mrad=generator.uniform(*data.semi_angle_mrad),
        defocus_angstrom=generator.uniform(*data.defocus_angstrom),
        tilt_mrad=tilt,
        position=generator.random(2),
        dose=float(np.exp(generator.uniform(*np.log(data.dose)))),
        thickness_angstrom=low + (high - low) * parts,
        generator=generator,
    )


@lru_cache(maxsize=len(CRYSTALS))
def _crystal(name: str) -> Crystal:
    return build_crystal(name)


@lru_cache(maxsize=1)
def _simulator(name: str, microscope: Microscope) -> Simulator:
    """Kept in the process that simulates, about 200 MB; it never travels with the source."""
    return Simulator(_crystal(name), microscope)


class AtomaiSource:
    """The data set as samples by number, simulated where they are read.

    Crystal by crystal, and probe by probe. Probes are simulated some at a time, always the same ones together: a sample
    does not depend, by so much as a rounding, on what is read beside it.
    """

    def __init__(self, data: AtomaiData) -> None:
        self.data = data
        for name in data.crystals:
            check_memory(_crystal(name), data.microscope)
        pixels = (1, data.microscope.rows, data.microscope.columns)
        self.spec = SampleSpec(
            fields={
                "image": Field(shape=pixels, dtype="uint8", description="255 sqrt(electrons / those of the brightest)"),
                "label": Field(shape=(), dtype="int64", description="crystal", classes=data.crystals),
                "probe": Field(shape=(), dtype="int32", description="number of the probe, over all crystals"),
                "validation": Field(shape=(), dtype="uint8", description="1 for each tenth probe of a crystal"),
                "thickness_angstrom": Field(shape=(), dtype="float32", unit="angstrom", description="of the crystal"),
                "tilt_mrad": Field(shape=(2,), dtype="float32", unit="mrad", description="beam to [001], x and y"),
                "semi_angle_mrad": Field(shape=(), dtype="float32", unit="mrad", description="of the beam's cone"),
                "defocus_angstrom": Field(shape=(), dtype="float32", unit="angstrom", description="of the probe"),
                "dose": Field(shape=(), dtype="float32", unit="electrons", description="of the whole beam"),
            }
        )

    def __len__(self) -> int:
        return len(self.data.crystals) * self.data.group

    def place(self, index: int) -> tuple[int, int, int]:
        """Crystal, probe of that crystal, and thickness of a sample."""
        crystal, within = divmod(index, self.data.group)
        return crystal, *divmod(within, self.data.thicknesses)

    def name(self, index: int) -> str:
        crystal, probe, thickness = self.place(index)
        return f"{self.data.crystals[crystal]}/probe{probe:05d}/t{thickness:02d}"

    def read(self, indices: Indices, out: Batch) -> None:
        rows_of: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for row, index in enumerate(np.asarray(indices).tolist()):
            crystal, probe, thickness = self.place(index)
            first = probe - probe % PROBES_AT_ONCE
            within = (probe - first) * self.data.thicknesses + thickness
            rows_of.setdefault((crystal, first), []).append((row, within))
        for (crystal, first), rows in rows_of.items():
            content = self._simulate(crystal, first, set(out))
            into, out_of = (list(each) for each in zip(*rows, strict=True))
            for name, buffer in out.items():
                buffer[into] = content[name][out_of]

    def _simulate(self, crystal: int, first: int, wanted: set[str]) -> Batch:
        """All samples of some probes, in order; of what takes time only the fields that are wanted."""
        probes = np.arange(first, min(first + PROBES_AT_ONCE, self.data.probes_per_crystal))
        running = (crystal * self.data.probes_per_crystal + probes).astype(np.int32)
        content: dict[str, NDArray[Any]] = {
            "label": np.full(len(probes), crystal, dtype=np.int64),
            "probe": running,
            "validation": (probes % VALIDATION_EVERY == VALIDATION_EVERY - 1).astype(np.uint8),
        }
        times = self.data.thicknesses
        ready = {name: torch.from_numpy(values).repeat_interleave(times, 0) for name, values in content.items()}
        if wanted <= ready.keys():
            return ready
        name = self.data.crystals[crystal]
        draws = [draw_probe(self.data, name, int(probe)) for probe in probes]
        for field in ("tilt_mrad", "semi_angle_mrad", "defocus_angstrom", "dose"):
            values = torch.from_numpy(np.asarray([getattr(draw, field) for draw in draws], dtype=np.float32))
            ready[field] = values.repeat_interleave(times, 0)
        cell = _crystal(name).edges_angstrom[2]
        asked = torch.from_numpy(np.stack([draw.thickness_angstrom for draw in draws]))
        thickness = self._whole_cells(asked, cell)
        ready["thickness_angstrom"] = thickness.flatten().float()
        if "image" in wanted:
            ready["image"] = self._photograph(name, draws, thickness)
        return ready

    def _whole_cells(self, thickness: torch.Tensor, cell: float) -> torch.Tensor:
        low, high = self.data.thickness_angstrom
        return (thickness / cell).round().clamp(np.ceil(low / cell), np.floor(high / cell)) * cell

    def _photograph(self, crystal: str, draws: Sequence[Draw], thickness: torch.Tensor) -> torch.Tensor:
        edges = np.asarray(_crystal(crystal).edges_angstrom[:2])
        probes = Probes(
            semi_angle_mrad=torch.tensor([draw.semi_angle_mrad for draw in draws]),
            defocus_angstrom=torch.tensor([draw.defocus_angstrom for draw in draws]),
            position_angstrom=torch.from_numpy(np.stack([draw.position * edges for draw in draws])).float(),
            tilt_mrad=torch.from_numpy(np.stack([draw.tilt_mrad for draw in draws])).float(),
        )
        patterns = _simulator(crystal, self.data.microscope).patterns(probes, thickness).numpy()
        pictures = [
            expose(pattern, draw.dose, draw.generator)
            for draw, row in zip(draws, patterns, strict=True)
            for pattern in row
        ]
        return torch.from_numpy(np.stack(pictures))[:, None]
