"""The instrument: an electron beam, the probes it forms, and a camera that counts electrons. It computes no wave."""

import math
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from deepex.errors import ConfigError, DataError
from deepex.science.diffraction.crystals import BAND_LIMIT, THERMAL_ANGSTROM, wavelength_angstrom


@dataclass(frozen=True, kw_only=True)
class Microscope:
    """What all patterns have in common: beam, camera, and how finely waves are computed.

    Attributes:
        rows, columns, pixel_mrad: the camera; its pixels see the same angles whatever the crystal.
        max_semi_angle_mrad, max_tilt_mrad: no probe has a wider cone, no crystal leans more.
        min_thickness_angstrom, max_thickness_angstrom: of the crystals.
        box_angstrom: edge of the supercell, about; waves are computed every wavelength / box (1.25 mrad).
        sampling_angstrom: of the grid in a cell, at most; with the band limit it sets the largest angle computed.
        thermal_angstrom: root-mean-square swing of the atoms along one axis; blurs the potential (Debye and Waller).
    """

    kilovolt: float = 200.0
    rows: int = 120
    columns: int = 85
    pixel_mrad: float = 1.0
    max_semi_angle_mrad: float = 12.0
    max_tilt_mrad: float = 7.5
    min_thickness_angstrom: float = 50.0
    max_thickness_angstrom: float = 500.0
    box_angstrom: float = 20.0
    sampling_angstrom: float = 0.104
    thermal_angstrom: float = THERMAL_ANGSTROM

    def __post_init__(self) -> None:
        may_be_zero = ("max_tilt_mrad", "thermal_angstrom")
        for name, value in asdict(self).items():
            if not (value >= 0 if name in may_be_zero else value > 0) or value == math.inf:
                allowed = "0 or more" if name in may_be_zero else "more than 0"
                raise ConfigError(f"microscope.{name} = {value}. Allowed: {allowed}.")
        if self.min_thickness_angstrom > self.max_thickness_angstrom:
            raise ConfigError(
                f"thicknesses from {self.min_thickness_angstrom} to {self.max_thickness_angstrom} angstrom. "
                "Allowed: the smaller one first."
            )
        seen = max(self.corner_mrad, self.max_semi_angle_mrad) + self.max_tilt_mrad
        if seen > self.band_mrad:
            raise ConfigError(
                f"a grid of {self.sampling_angstrom} angstrom holds angles up to {self.band_mrad:.1f} mrad, but the "
                f"detector's corner ({self.corner_mrad:.1f}) or the aperture ({self.max_semi_angle_mrad:g}), with a "
                f"tilt of {self.max_tilt_mrad:g}, needs {seen:.1f}. Set sampling_angstrom to "
                f"{self.sampling_angstrom * self.band_mrad / seen:.3f} or less, or look at smaller angles."
            )

    @property
    def wavelength(self) -> float:
        """Angstrom."""
        return wavelength_angstrom(self.kilovolt)

    @property
    def band_mrad(self) -> float:
        """The largest angle that the grid holds, with the band limit."""
        return 1e3 * self.wavelength * BAND_LIMIT / (2 * self.sampling_angstrom)

    @property
    def half_mrad(self) -> tuple[float, float]:
        """Angles at the middle of the detector's outermost pixels, along rows and columns."""
        return (self.rows - 1) / 2 * self.pixel_mrad, (self.columns - 1) / 2 * self.pixel_mrad

    @property
    def corner_mrad(self) -> float:
        return math.hypot(*self.half_mrad)


@dataclass(frozen=True, kw_only=True, eq=False)
class Probes:
    """B convergent beams. A probe's tilt is that of the crystal: the beam comes in at this angle to [001].

    Attributes:
        semi_angle_mrad, defocus_angstrom: B; a beam in focus, 0, has its waist at the surface where it enters.
        position_angstrom, tilt_mrad: B x 2, along rows and columns.
    """

    semi_angle_mrad: Tensor
    defocus_angstrom: Tensor
    position_angstrom: Tensor
    tilt_mrad: Tensor


def expose(pattern: NDArray[np.float32], dose: float, generator: np.random.Generator) -> NDArray[np.uint8]:
    """An 8-bit picture of a pattern: Poisson counts of `dose` electrons, 255 sqrt(count / brightest).

    The root makes the noise the same everywhere (Anscombe 1948) and shows discs of a hundredth of the brightest.
    """
    if not 0 < dose < math.inf:
        raise DataError(f"a dose of {dose} electrons. Allowed: more than 0.")
    counts = generator.poisson(dose * pattern.astype(np.float64))
    picture: NDArray[np.uint8] = np.rint(np.sqrt(counts * (255.0**2 / max(1, counts.max())))).astype(np.uint8)
    return picture
