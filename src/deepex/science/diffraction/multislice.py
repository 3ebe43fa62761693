"""Convergent-beam electron diffraction by multislice (Cowley and Moodie 1957), batched over probes, in torch.

A crystal repeats itself, so a wave that enters it at transverse frequency k leaves it at frequencies k + g only, with
g of the cell's reciprocal lattice. Multislice is therefore run once, through one cell, for all plane waves; its result,
one scattering matrix for each coset k + g, takes the waves of the aperture through the crystal cell by cell. A probe
is a sum of those waves (PRISM, Ophus 2017), here without interpolation: the result is that of multislice.
Nothing here knows of data files or tasks.

Letters: B images, K cosets, G beams of a coset, S slices of a cell, X Y points of a cell, I J frequencies of the
supercell, R C detector rows and columns.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deepex.errors import DataError
from deepex.science.diffraction.crystals import (
    BAND_LIMIT,
    Crystal,
    Grid,
    interaction_constant,
    project_potential,
    smooth_size,
)
from deepex.science.diffraction.microscope import Microscope, Probes

MAX_GIB = 8  # of one crystal's scattering matrices; those of the data set's own microscope take 0.2


def check_memory(crystal: Crystal, microscope: Microscope) -> None:
    """Refuse scattering matrices that no machine holds, by areas in the plane of frequencies, before any is made."""
    x, y, height = crystal.edges_angstrom
    area = max(microscope.box_angstrom, x) * max(microscope.box_angstrom, y)
    cosets = area / (x * y) * (2 if crystal.centred else 1)
    waves_per_mrad = area * (2 / 1e3 / microscope.wavelength) ** 2  # in a rectangle of half 1 x 1 mrad
    lit = waves_per_mrad * (microscope.max_semi_angle_mrad + microscope.max_tilt_mrad) ** 2
    seen = waves_per_mrad * math.prod(half + microscope.max_tilt_mrad for half in microscope.half_mrad)
    beams = area * math.pi * (BAND_LIMIT / 2 / microscope.sampling_angstrom) ** 2 / cosets
    thicknesses = (microscope.max_thickness_angstrom - microscope.min_thickness_angstrom) / height + 1
    gib = 8 * (2 * beams**2 + thicknesses * lit * seen / cosets) / 2**30
    if gib > MAX_GIB:
        raise DataError(
            f"the scattering matrices of {crystal.name} would take {gib:,.0f} GiB. Allowed: {MAX_GIB}. Ask for fewer "
            f"thicknesses than {microscope.min_thickness_angstrom:g} to {microscope.max_thickness_angstrom:g} "
            f"angstrom, a smaller box_angstrom than {microscope.box_angstrom:g}, or a coarser sampling_angstrom than "
            f"{microscope.sampling_angstrom:g}."
        )


def multislice(waves: Tensor, transmission: Tensor, propagator: Tensor) -> Tensor:
    """Waves after the slices of a cell: psi <- F⁻¹ [ P · F ( T psi ) ] for each T.

    Arguments:
        waves: B x X x Y, complex.
        transmission: S x X x Y, exp(i sigma V) / X Y without frequencies beyond the band limit.
        propagator: X x Y, or B x X x Y for waves of different tilts; zero beyond the band limit.

    The division by X Y belongs to the transform back. There it would multiply all waves, slice after slice, by the
    same rounded number, and lose 3e-5 of the electrons in 250 slices; in T it is rounded differently at each point.
    """
    for transmit in transmission:
        waves = torch.fft.ifft2(torch.fft.fft2(waves * transmit).mul_(propagator), norm="forward")
    return waves


class Simulator:
    """Patterns of one crystal under one microscope; building it takes seconds, a pattern less than a millisecond.

    Example: `Simulator(build_crystal("Si"), Microscope()).patterns(probes, [100.0, 250.0])`
    """

    def __init__(self, crystal: Crystal, microscope: Microscope, device: torch.device | str = "cpu") -> None:
        check_memory(crystal, microscope)
        self.crystal, self.microscope, self.device = crystal, microscope, torch.device(device)
        self.cell_angstrom = crystal.edges_angstrom[2]
        self.first = math.ceil(microscope.min_thickness_angstrom / self.cell_angstrom)
        self.last = math.floor(microscope.max_thickness_angstrom / self.cell_angstrom)
        if self.last < self.first:
            raise DataError(
                f"{crystal.name} from {microscope.min_thickness_angstrom:g} to {microscope.max_thickness_angstrom:g} "
                f"angstrom holds no whole number of its cells of {self.cell_angstrom:.2f}. Allow thicker crystals."
            )
        edges = crystal.edges_angstrom[:2]
        x, y = (smooth_size(edge / microscope.sampling_angstrom) for edge in edges)
        cells = [max(1, round(microscope.box_angstrom / edge)) for edge in edges]
        self.grid = Grid(
            points=(x, y),
            cells=(cells[0], cells[1]),
            edges=edges,
            centred=crystal.centred,
            limit=BAND_LIMIT / 2 * min(x / edges[0], y / edges[1]),
        )
        # Frequencies that are lit and that are seen, with one more on each side for soft edges and interpolation.
        cone = microscope.max_semi_angle_mrad + microscope.max_tilt_mrad
        self._lit = self._reach((cone, cone))
        self.seen = self._reach(tuple(half + microscope.max_tilt_mrad for half in microscope.half_mrad))
        potential = project_potential(crystal, (x, y), microscope.thermal_angstrom).to(self.device)
        self._table, self._lit_index, self._seen_index = self._scatter(potential)

    def _reach(self, mrad: tuple[float, ...]) -> tuple[int, int]:
        """Whole numbers of the supercell's frequencies, along x and y, that cover an angle."""
        x, y = (int(a / 1e3 / self.microscope.wavelength * box) + 1 for a, box in zip(mrad, self.grid.box, strict=True))
        return x, y

    def _scatter(self, potential: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """How the lit waves of each coset leave a crystal of each thickness: cells x K x G seen x G lit.

        Beside it, where those waves stand in the flattened frequencies that are lit and seen: K x G. Cosets are of
        unequal size; the rest of the table is zero and its places point one beyond the last frequency.
        """
        cosets = list(self.grid.cosets())
        # A disc's soft edge ends half a frequency beyond its radius.
        cone = (self.microscope.max_semi_angle_mrad + self.microscope.max_tilt_mrad) / 1e3 / self.microscope.wavelength
        radius = cone + 0.5 / min(self.grid.box)
        lit = [np.flatnonzero(np.square(c / np.asarray(self.grid.box)).sum(axis=1) <= radius**2) for c in cosets]
        seen = [np.flatnonzero((np.abs(c) <= self.seen).all(axis=1)) for c in cosets]
        shape = (self.last - self.first + 1, len(cosets), max(map(len, seen)), max(map(len, lit)))
        table = torch.zeros(shape, dtype=torch.complex64, device=self.device)
        into = torch.full((len(cosets), shape[3]), _count(self._lit))
        out_of = torch.full((len(cosets), shape[2]), _count(self.seen))
        transmission = self.grid.transmission(potential, interaction_constant(self.microscope.kilovolt))
        for number, (coset, enters, leaves) in enumerate(zip(cosets, lit, seen, strict=True)):
            if not len(enters):
                continue
            into[number, : len(enters)] = _flatten(coset[enters], self._lit)
            out_of[number, : len(leaves)] = _flatten(coset[leaves], self.seen)
            cell = self._cell_matrix(transmission, coset)
            waves = cell[:, torch.from_numpy(enters)]
            for cells in range(1, self.last + 1):
                if cells >= self.first:
                    table[cells - self.first, number, : len(leaves), : len(enters)] = waves[torch.from_numpy(leaves)]
                waves = cell @ waves
        return table, into.to(self.device), out_of.to(self.device)

    def _cell_matrix(self, transmission: Tensor, coset: NDArray[np.int64]) -> Tensor:
        """One cell's scattering matrix, G x G: column by column the plane waves of a coset, sent through its slices."""
        cells, points = np.asarray(self.grid.cells), np.asarray(self.grid.points)
        beams = torch.from_numpy(coset // cells % points).to(self.device)
        first = (coset[0] % cells) / np.asarray(self.grid.box)
        propagator = self.grid.propagator(
            self.microscope.wavelength, self.crystal.slice_angstrom, (float(first[0]), float(first[1]))
        )
        waves = torch.zeros((len(coset), *self.grid.points), dtype=torch.complex64, device=self.device)
        waves[torch.arange(len(coset)), beams[:, 0], beams[:, 1]] = 1.0
        left = torch.fft.fft2(multislice(torch.fft.ifft2(waves), transmission, propagator.to(self.device)))
        matrix: Tensor = left[:, beams[:, 0], beams[:, 1]].T.contiguous()
        return matrix

    def cells(self, thickness_angstrom: Tensor) -> Tensor:
        """The numbers of cells nearest to thicknesses, which the microscope must allow."""
        cells = (thickness_angstrom / self.cell_angstrom).round().long()
        if bool(((cells < self.first) | (cells > self.last)).any()):
            raise DataError(
                f"{self.crystal.name} {float(thickness_angstrom.min()):g} to {float(thickness_angstrom.max()):g} "
                f"angstrom thick. Allowed: {self.first} to {self.last} cells of {self.cell_angstrom:.2f} angstrom, "
                "from the microscope's min_ to its max_thickness_angstrom."
            )
        return cells

    def illuminate(self, probes: Probes) -> Tensor:
        """Probes on the lit frequencies, B x I x J, each of total intensity 1.

        psi(q) = A(|q - t|) exp(-2 pi i q·r + i pi lambda f |q - t|²), A a disc whose edge is one frequency wide, t the
        tilt, r the position and f the defocus. The phase is a product of one factor along x and one along y.
        """
        self._check(probes)
        wavelength = self.microscope.wavelength
        phases, offsets = [], []
        for axis in (0, 1):
            reach, box = self._lit[axis], self.grid.box[axis]
            frequency = torch.arange(-reach, reach + 1, device=self.device) / box
            offset = frequency - probes.tilt_mrad[:, axis, None] / 1e3 / wavelength
            turns = probes.defocus_angstrom[:, None] * wavelength / 2 * offset.square()
            turns = turns - frequency * probes.position_angstrom[:, axis, None]
            phases.append(torch.polar(torch.ones_like(turns), 2 * math.pi * (turns - turns.round())))
            offsets.append(offset)
        x, y = offsets[0][:, :, None], offsets[1][:, None, :]
        radius = torch.sqrt(x.square() + y.square()).clamp_min(1e-9)
        width = torch.sqrt((x / self.grid.box[0]).square() + (y / self.grid.box[1]).square()) / radius
        edge = (probes.semi_angle_mrad / 1e3 / wavelength)[:, None, None]
        disc = ((edge - radius) / width.clamp_min(1e-9) + 0.5).clamp(0, 1)
        disc = disc / disc.square().sum(dim=(1, 2), keepdim=True).sqrt()
        return disc * phases[0][:, :, None] * phases[1][:, None, :]

    def _check(self, probes: Probes) -> None:
        limits = {
            "semi-angle": (probes.semi_angle_mrad, self.microscope.max_semi_angle_mrad),
            "tilt": (probes.tilt_mrad.norm(dim=1), self.microscope.max_tilt_mrad),
        }
        for name, (values, most) in limits.items():
            if float(values.max()) > most * (1 + 1e-6) or float(values.min()) < 0 or not bool(values.isfinite().all()):
                raise DataError(
                    f"a probe has a {name} of {float(values.max()):g} mrad (least {float(values.min()):g}). "
                    f"Allowed: 0 to {most:g}, which the microscope's max_{name.replace('-', '_')}_mrad sets."
                )

    def intensities(self, probes: Probes, cells: Tensor) -> Tensor:
        """Shares of the beam at the seen frequencies, B x T x I x J, after B x T numbers of cells."""
        probe = self.illuminate(probes).flatten(1)
        probe = torch.cat([probe, probe.new_zeros(len(probe), 1)], dim=1)[:, self._lit_index]
        share = torch.zeros((*cells.shape, _count(self.seen) + 1), device=self.device)
        for number, thicknesses in enumerate((cells - self.first).tolist()):
            for place, thickness in enumerate(thicknesses):
                left = torch.bmm(self._table[thickness], probe[number, :, :, None])
                share[number, place, self._seen_index.flatten()] = left.abs().square().flatten()
        return share[..., :-1].reshape(*cells.shape, 2 * self.seen[0] + 1, 2 * self.seen[1] + 1)

    def patterns(self, probes: Probes, thickness_angstrom: Tensor) -> Tensor:
        """Shares of the beam in the detector's pixels, B x T x R x C, at B x T thicknesses.

        The detector's middle is the direction of the incident beam. Intensity between frequencies is interpolated
        linearly both ways; a pixel gets its density times the pixel's area.
        """
        share = self.intensities(probes, self.cells(thickness_angstrom))
        rows, columns = (self._weights(probes.tilt_mrad[:, axis], axis) for axis in (0, 1))
        return rows[:, None] @ share @ columns[:, None].mT

    def _weights(self, tilt_mrad: Tensor, axis: int) -> Tensor:
        """What each frequency gives to each pixel along one axis: B x pixels x frequencies."""
        count, reach = (self.microscope.rows, self.microscope.columns)[axis], self.seen[axis]
        per_mrad = self.grid.box[axis] / (1e3 * self.microscope.wavelength)
        pixel = torch.arange(count, device=self.device) * self.microscope.pixel_mrad - self.microscope.half_mrad[axis]
        place = (pixel + tilt_mrad[:, None]) * per_mrad + reach
        frequency = torch.arange(2 * reach + 1, device=self.device)
        return (1 - (place[:, :, None] - frequency).abs()).clamp_min(0) * (self.microscope.pixel_mrad * per_mrad)


def _count(reach: tuple[int, int]) -> int:
    return (2 * reach[0] + 1) * (2 * reach[1] + 1)


def _flatten(index: NDArray[np.int64], reach: tuple[int, int]) -> Tensor:
    return torch.from_numpy((index[:, 0] + reach[0]) * (2 * reach[1] + 1) + index[:, 1] + reach[1])
