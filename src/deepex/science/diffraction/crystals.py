"""Crystals that electrons are sent through: 27 that a laboratory knows, as orthogonal cells with [001] along the beam.

Lattice constants are those of room temperature (ase's reference states, and Wyckoff's tables for the compounds).
Beside them the potential that a beam meets there, and the grid on which it is computed, with its frequencies.
Nothing here knows of probes or detectors.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deepex.errors import DataError, UsageError, unknown

PLANCK, ELECTRON_MASS, CHARGE, LIGHT = 6.62607015e-34, 9.1093837015e-31, 1.602176634e-19, 299792458.0
MIN_DISTANCE_ANGSTROM = 0.7  # the shortest bond there is, in H2, has 0.74
MIN_EDGE_ANGSTROM = 1.0
BAND_LIMIT = 2 / 3  # of the grid's largest frequency: the product of two waves within it is not folded back into it
BAND_EDGE = 0.03  # the share of the band limit over which it falls from 1 to 0
THERMAL_ANGSTROM = 0.08  # how far atoms swing at room temperature (root mean square along one axis), typical for metals


@dataclass(frozen=True, kw_only=True, eq=False)
class Crystal:
    """An orthogonal unit cell, cut along the beam into slices of equal thickness; N atoms.

    Attributes:
        edges_angstrom: of the cell along x, y (detector rows, columns) and z (the beam).
        numbers: N atomic numbers.
        positions_angstrom: N x 3.
        slices: into which the cell is cut; atomic planes should stand inside of slices, not on a cut.
    """

    name: str
    edges_angstrom: tuple[float, float, float]
    numbers: NDArray[np.int64]
    positions_angstrom: NDArray[np.float64]
    slices: int

    def __post_init__(self) -> None:
        if not len(self.numbers):
            raise DataError(f"crystal '{self.name}' has no atoms. Give at least one.")
        if self.positions_angstrom.shape != (len(self.numbers), 3) or not np.isfinite(self.positions_angstrom).all():
            raise DataError(
                f"crystal '{self.name}' has {len(self.numbers)} atoms and positions of shape "
                f"{self.positions_angstrom.shape}. Give three finite coordinates for each atom."
            )
        if self.numbers.min() < 1 or self.numbers.max() > 103:
            raise DataError(f"crystal '{self.name}' has atomic numbers {self.numbers.tolist()}. Allowed: 1 to 103.")
        if not all(np.isfinite(edge) and edge >= MIN_EDGE_ANGSTROM for edge in self.edges_angstrom):
            raise DataError(
                f"crystal '{self.name}' has edges of {self.edges_angstrom} angstrom. "
                f"Allowed: {MIN_EDGE_ANGSTROM} or more."
            )
        if self.slices < 1:
            raise DataError(f"crystal '{self.name}' is cut into {self.slices} slices. Allowed: 1 or more.")
        distance, first, second = self._nearest()
        if distance < MIN_DISTANCE_ANGSTROM:
            raise DataError(
                f"crystal '{self.name}': atoms {first} and {second} are {distance:.2f} angstrom apart. "
                f"Allowed: {MIN_DISTANCE_ANGSTROM} or more. Check positions, edges, and that no atom is given twice."
            )

    def _nearest(self) -> tuple[float, int, int]:
        """The shortest distance between two atoms, periodic images included, and which two they are."""
        edges = np.asarray(self.edges_angstrom)
        apart = self.positions_angstrom[:, None] - self.positions_angstrom[None]
        apart -= edges * np.round(apart / edges)
        distance = np.sqrt(np.square(apart).sum(axis=-1))
        np.fill_diagonal(distance, edges.min())  # an atom's nearest image of itself
        first, second = divmod(int(distance.argmin()), len(distance))
        return float(distance[first, second]), first, second

    @property
    def slice_angstrom(self) -> float:
        return self.edges_angstrom[2] / self.slices

    @property
    def centred(self) -> bool:
        """Whether it looks the same half a cell further in both x and y, at equal height."""
        edges = np.asarray(self.edges_angstrom)
        apart = self.positions_angstrom[:, None] + edges * (0.5, 0.5, 0.0) - self.positions_angstrom[None]
        apart -= edges * np.round(apart / edges)
        same = (np.abs(apart).max(axis=-1) < 1e-3) & (self.numbers[:, None] == self.numbers[None])
        return bool(same.any(axis=1).all())

    def atoms(self) -> Any:
        """The cell as ase's Atoms."""
        from ase import Atoms

        return Atoms(self.numbers, self.positions_angstrom, cell=self.edges_angstrom, pbc=True)


def from_atoms(name: str, atoms: Any, slices: int) -> Crystal:
    """A crystal from ase's Atoms, moved along the beam so that planes at multiples of a slice stand inside one.

    Example: `from_atoms("Po", ase.build.bulk("Po", "sc", a=3.35), slices=2)`
    """
    cell = np.asarray(atoms.cell)
    if np.abs(cell - np.diag(np.diag(cell))).max() > 1e-6 * max(np.abs(cell).max(), 1.0):
        raise DataError(
            f"crystal '{name}' has the cell {cell.round(3).tolist()}, which is not orthogonal. "
            "Give a cell with edges along x, y and z, such as abtem.orthogonalize_cell makes."
        )
    edges = np.diag(cell).astype(np.float64)
    positions = np.asarray(atoms.positions, dtype=np.float64).copy()
    if slices >= 1 and (edges > 0).all():
        positions[:, 2] += edges[2] / (2 * slices)
        positions %= edges
    return Crystal(
        name=name,
        edges_angstrom=(float(edges[0]), float(edges[1]), float(edges[2])),
        numbers=np.asarray(atoms.numbers, dtype=np.int64),
        positions_angstrom=positions,
        slices=slices,
    )


def _bulk(formula: str, structure: str, edge: float, height: float | None = None) -> Any:
    from ase.build import bulk

    if height is None:
        return bulk(formula, structure, a=edge, cubic=True)
    return bulk(formula, structure, a=edge, c=height, orthorhombic=True)


def _rutile() -> Any:
    from ase.spacegroup import crystal

    sites = [(0, 0, 0), (0.3053, 0.3053, 0)]
    return crystal(["Ti", "O"], sites, spacegroup=136, cellpar=[4.594, 4.594, 2.959, 90, 90, 90])


def _perovskite(symbols: str, edge: float, height: float, shifts: tuple[float, float, float]) -> Any:
    """A at the corner, B in the middle, O on the faces; `shifts` of B, O above B, O beside B, along the height."""
    from ase import Atoms

    middle, above, beside = shifts
    sites = [(0, 0, 0), (0.5, 0.5, 0.5 + middle), (0.5, 0.5, above), (0.5, 0, 0.5 + beside), (0, 0.5, 0.5 + beside)]
    return Atoms(symbols, scaled_positions=sites, cell=(edge, edge, height), pbc=True)


def _table() -> dict[str, tuple[int, Callable[[], Any]]]:
    """Slices of a cell, and how it is built, by name."""
    face = {"Al": 4.05, "Cu": 3.61, "Ag": 4.09, "Au": 4.08, "Pt": 3.92, "Ni": 3.52}
    body = {"Fe": 2.87, "W": 3.16, "Nb": 3.30}
    diamond = {"Si": 5.43, "Ge": 5.66, "C": 3.57}
    salt = {"NaCl": 5.64, "MgO": 4.21, "PbTe": 6.46}
    blende = {"GaAs": 5.65, "InP": 5.87, "ZnS": 5.41}
    hexagonal = {"Mg": (3.21, 5.21), "Ti": (2.95, 4.68), "Zn": (2.66, 4.95)}
    kinds: list[tuple[str, int, dict[str, float]]] = [
        ("fcc", 2, face),
        ("bcc", 2, body),
        ("diamond", 4, diamond),
        ("rocksalt", 2, salt),
        ("zincblende", 4, blende),
    ]
    table: dict[str, tuple[int, Callable[[], Any]]] = {}
    for structure, slices, edges in kinds:
        for name, edge in edges.items():
            table[name] = (slices, partial(_bulk, name, structure, edge))
    for name, (edge, height) in hexagonal.items():
        table[name] = (2, partial(_bulk, name, "hcp", edge, height))
    table["GaN"] = (8, partial(_bulk, "GaN", "wurtzite", 3.189, 5.185))
    table["SrTiO3"] = (2, partial(_perovskite, "SrTiO3", 3.905, 3.905, (0.0, 0.0, 0.0)))
    # Tetragonal at room temperature: titanium and oxygen stand off the symmetric places (Kwei et al. 1993).
    table["BaTiO3"] = (2, partial(_perovskite, "BaTiO3", 3.994, 4.033, (0.0215, -0.0233, -0.0100)))
    table["CsCl"] = (2, partial(_bulk, "CsCl", "cesiumchloride", 4.123))
    table["CaF2"] = (4, partial(_bulk, "CaF2", "fluorite", 5.463))
    table["TiO2"] = (2, _rutile)
    return table


_CRYSTALS = _table()
CRYSTALS: tuple[str, ...] = tuple(_CRYSTALS)
"""The names of the 27 crystals, in the order of their class numbers."""


def build_crystal(name: str) -> Crystal:
    """One of the 27 crystals by name. Example: `build_crystal("SrTiO3").edges_angstrom[0]` is 3.905."""
    if name not in _CRYSTALS:
        raise DataError(unknown("crystal", name, CRYSTALS))
    slices, build = _CRYSTALS[name]
    try:
        return from_atoms(name, build(), slices)
    except ImportError as error:
        raise UsageError(
            f"crystals need the package ase ({error}). Install it: pip install 'deepex[science]'"
        ) from error


def wavelength_angstrom(kilovolt: float) -> float:
    """The electron's wavelength, h / sqrt(2 m e U (1 + e U / 2 m c²)): 0.0251 angstrom at 200 kV."""
    energy = CHARGE * kilovolt * 1e3
    rest = ELECTRON_MASS * LIGHT**2
    return 1e10 * PLANCK / math.sqrt(2 * ELECTRON_MASS * energy * (1 + energy / (2 * rest)))


def interaction_constant(kilovolt: float) -> float:
    """Radians of phase for each volt x angstrom of projected potential: 2 pi m e lambda / h², m relativistic."""
    mass = ELECTRON_MASS * (1 + CHARGE * kilovolt * 1e3 / (ELECTRON_MASS * LIGHT**2))
    return 2 * math.pi * mass * CHARGE * wavelength_angstrom(kilovolt) * 1e-20 / PLANCK**2


def project_potential(crystal: Crystal, points: tuple[int, int], thermal_angstrom: float = THERMAL_ANGSTROM) -> Tensor:
    """The potential of one cell, projected slice by slice: S x X x Y, volt x angstrom.

    V(g) = sum over a slice's atoms of f(g) exp(-2 pi² u² g² - 2 pi i g·r), with the projected scattering factors f of
    Lobato and Van Dyck (2014) from abTEM and the thermal swing u. abTEM's own grid spreads an atom between points
    over its four neighbours, which blurs it by up to the grid's step; the sum does not.
    """
    factors = _scattering_factors(thermal_angstrom)
    (width, depth, _), (x_points, y_points) = crystal.edges_angstrom, points
    x, y = np.fft.fftfreq(x_points, width / x_points), np.fft.fftfreq(y_points, depth / y_points)
    squared = np.square(x)[:, None] + np.square(y)[None]
    spectrum = np.zeros((crystal.slices, *points), dtype=np.complex128)
    for number in np.unique(crystal.numbers):
        factor = factors(int(number), squared)
        for position in crystal.positions_angstrom[crystal.numbers == number]:
            phase = np.exp(-2j * np.pi * x * position[0])[:, None] * np.exp(-2j * np.pi * y * position[1])[None]
            spectrum[int(position[2] / crystal.slice_angstrom) % crystal.slices] += factor * phase
    density = x_points * y_points / (width * depth)  # the inverse transform divides by the number of points
    return torch.from_numpy((np.fft.ifft2(spectrum).real * density).astype(np.float32))


def _scattering_factors(thermal_angstrom: float) -> Callable[[int, NDArray[np.float64]], NDArray[np.float64]]:
    """Projected scattering factor by atomic number and squared frequency, volt x angstrom³, with thermal blur."""
    try:
        from abtem.parametrizations import LobatoParametrization
        from ase.data import chemical_symbols
    except ImportError as error:
        raise UsageError(f"potentials need abtem ({error}). Install it: pip install 'deepex[science]'") from error
    lobato: Any = LobatoParametrization()

    def factor(number: int, squared: NDArray[np.float64]) -> NDArray[np.float64]:
        bare = np.asarray(lobato.projected_scattering_factor(chemical_symbols[number])(squared), dtype=np.float64)
        return bare * np.exp(-2 * (np.pi * thermal_angstrom) ** 2 * squared)

    return factor


def smooth_size(least: float) -> int:
    """The smallest even product of 2, 3 and 5 that is not below `least`: other sizes make slow transforms.

    >>> smooth_size(33.2), smooth_size(40)
    (36, 40)
    """
    size = 2 * max(1, math.ceil(least / 2 - 1e-9))
    while pow(30, 40, size):  # zero if, and only if, 30⁴⁰ holds all factors of the size
        size += 2
    return size


@dataclass(frozen=True, kw_only=True, eq=False)
class Grid:
    """A cell's points, the supercell's frequencies, and which of them belong together.

    Attributes:
        points: X, Y. cells: of the supercell, along x and y. edges: of the cell, angstrom.
        centred: each slice looks the same half a cell further in x and y, so that g = (h, k) with odd h + k is absent.
        limit: largest frequency, 1 / angstrom.
    """

    points: tuple[int, int]
    cells: tuple[int, int]
    edges: tuple[float, float]
    centred: bool
    limit: float

    @property
    def box(self) -> tuple[float, float]:
        """Edges of the supercell, angstrom."""
        return self.cells[0] * self.edges[0], self.cells[1] * self.edges[1]

    def squared(self, offset: tuple[float, float] = (0.0, 0.0)) -> Tensor:
        """|g + offset|² at the cell's frequencies, X x Y."""
        x, y = (
            torch.fft.fftfreq(count, edge / count, dtype=torch.float64) + shift
            for count, edge, shift in zip(self.points, self.edges, offset, strict=True)
        )
        total: Tensor = x[:, None].square() + y[None].square()
        return total

    def window(self, squared: Tensor) -> Tensor:
        """1 within the band limit and 0 beyond; the last hundredths fall off like a cosine, as in abTEM."""
        beyond = (squared.sqrt() / self.limit - 1 + BAND_EDGE) / BAND_EDGE
        return (1 + torch.cos(math.pi * beyond.clamp(0, 1))) / 2

    def transmission(self, potential: Tensor, sigma: float, dtype: torch.dtype = torch.complex64) -> Tensor:
        """exp(i sigma V) / X Y, S x X x Y, with frequencies up to the limit."""
        spectrum = torch.fft.fft2(torch.exp(1j * sigma * potential.double()))
        limited: Tensor = torch.fft.ifft2(spectrum * self.window(self.squared()).to(spectrum.device))
        return (limited / math.prod(self.points)).to(dtype)

    def propagator(
        self,
        wavelength: float,
        distance: float,
        offset: tuple[float, float] = (0.0, 0.0),
        dtype: torch.dtype = torch.complex64,
    ) -> Tensor:
        """exp(-i pi lambda dz |g + k|²), X x Y: Fresnel propagation of waves that entered at frequency k."""
        squared = self.squared(offset)
        phase = torch.exp(-1j * math.pi * wavelength * distance * squared)
        return (phase * self.window(squared)).to(dtype)

    def cosets(self) -> Iterator[NDArray[np.int64]]:
        """Frequencies of the supercell, as whole numbers over its edges, that scatter into each other: G x 2."""
        most = [int(self.limit * edge) for edge in self.box]
        index = np.stack(np.meshgrid(*(np.arange(-n, n + 1) for n in most), indexing="ij"), axis=-1).reshape(-1, 2)
        index = index[np.square(index / np.asarray(self.box)).sum(axis=1) <= self.limit**2]
        cell = index // np.asarray(self.cells)
        remainder = index - cell * np.asarray(self.cells)
        parity = cell.sum(axis=1) % 2 if self.centred else np.zeros(len(index), dtype=np.int64)
        key = (remainder[:, 0] * self.cells[1] + remainder[:, 1]) * 2 + parity
        order = np.argsort(key, kind="stable")
        yield from np.split(index[order], np.flatnonzero(np.diff(key[order])) + 1)
