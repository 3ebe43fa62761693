"""A particle mesh: cold matter under its own gravity in a periodic box, from a Gaussian field to counts of particles.

Ten steps do, because each is exact in second-order perturbation theory (BullFrog: Rampf, List & Hahn, JCAP 2025).
Masses are spread in whole numbers, so that sums don't depend on their order, on any device and with any number of
threads, and nothing is lost.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from deepex.errors import DataError
from deepex.science.cosmology.density_field import displacements, gaussian_field, gradient_axes, inverse_square
from deepex.science.cosmology.universe import Cosmology, Growth

REDSHIFTS = (3.0, 1.5, 0.5, 0.0)  # of CosmoFlow's four channels
START_REDSHIFT = 9.0
MAX_STEP = 0.12  # in the scale factor, which is 1 today: 10 steps for the four redshifts
# Before, forces come from a mesh as fine as the particles' lattice, later from one of half as many cells more: on a
# finer mesh a lattice that is hardly displaced pulls at itself (31 % too much power at k = 0.34 h/Mpc and z = 3 with
# twice the cells of 4 Mpc/h), on the coarser one haloes stay too soft (7 % too little at z = 0).
REFINE_REDSHIFT = 3.0
NEEDED_K = 0.4  # h/Mpc: the grid must carry the waves that the spectrum is checked to
MIN_CELL_MPC = 1.0
MIN_BOX_MPC = 96.0
FRACTION_BITS = 10  # of a particle's place within a cell when its mass is spread: shares, of 3 x 10 bits, fit int32
SHARE_UNIT = 0.5 ** (3 * FRACTION_BITS)
CHUNK = 1 << 15  # particles spread at a time: their cells and shares stay in the cache
MAX_CELLS = 800  # a side: the cells of the finer mesh, 1200 a side, are numbered in int32
MAX_COUNT = torch.iinfo(torch.int16).max


@dataclass(frozen=True, kw_only=True)
class Box:
    """A periodic box with one particle a cell in the mean.

    Arguments:
        cells: a side, and particles a side.
        cell_mpc: a cell's side in Mpc/h.
    """

    cells: int
    cell_mpc: float

    def __post_init__(self) -> None:
        check_grid(self.cells)
        coarsest = np.pi / NEEDED_K
        if not MIN_CELL_MPC <= self.cell_mpc <= coarsest:
            raise DataError(
                f"cells of {self.cell_mpc:g} Mpc/h. Allowed: {MIN_CELL_MPC:g} (finer ones need more steps) to "
                f"{coarsest:.2f} (the Nyquist wavenumber of coarser ones is below {NEEDED_K} h/Mpc)."
            )
        if self.side_mpc < MIN_BOX_MPC:
            raise DataError(
                f"a box of {self.cells} cells of {self.cell_mpc:g} Mpc/h is {self.side_mpc:g} Mpc/h wide. Allowed: "
                f"{MIN_BOX_MPC:g} and more, for its longest wave must still be a small one. Take more or larger cells."
            )

    @property
    def fine_mesh(self) -> int:
        """Cells a side of the mesh on which late forces are computed."""
        return self.cells * 3 // 2

    @property
    def side_mpc(self) -> float:
        return self.cells * self.cell_mpc


def check_grid(cells: int) -> None:
    """Raise unless a grid's Fourier transforms are fast, and those of the mesh that is half as fine again."""
    allowed = [n for n in range(8, MAX_CELLS + 1, 4) if _is_smooth(n)]
    if cells not in allowed:
        near = [
            max((n for n in allowed if n < cells), default=8),
            min((n for n in allowed if n > cells), default=MAX_CELLS),
        ]
        raise DataError(
            f"a box of {cells} cells a side. Allowed: multiples of 4 from 8 to {MAX_CELLS} with no factors but 2, 3 "
            f"and 5, whose Fourier transforms are fast. Near: {', '.join(map(str, near))}."
        )


def _is_smooth(number: int) -> bool:
    for factor in (2, 3, 5):
        while number % factor == 0:
            number //= factor
    return number == 1


def clouds(positions: Tensor, mesh: int) -> tuple[Tensor, Tensor]:
    """The eight mesh cells around each particle, and its share of each (both 8 x P, int32).

    Arguments:
        positions: 3 x P, in mesh cells, any whole number of boxes away.

    Cells count along the flat mesh; shares are whole and add up to 2 ** (3 FRACTION_BITS).
    """
    unit = 1 << FRACTION_BITS
    place = (positions * unit).round_().int().remainder_(mesh * unit)
    low = place >> FRACTION_BITS
    high = low + 1
    high = torch.where(high == mesh, torch.zeros_like(high), high)
    upper = place & (unit - 1)
    ends, shares = (low, high), (unit - upper, upper)
    cell, share = [], []
    for x, u in zip(ends, shares, strict=True):
        slab = x[0] * (mesh * mesh)
        for y, v in zip(ends, shares, strict=True):
            column, product = slab + y[1] * mesh, u[0] * v[1]
            for z, w in zip(ends, shares, strict=True):
                cell.append(column + z[2])
                share.append(product * w[2])
    return torch.stack(cell), torch.stack(share)


def paint(positions: Tensor, mesh: int) -> Tensor:
    """Mass in each cell (mesh x mesh x mesh, float32), particles (3 x P, in mesh cells) of mass 1 spread over eight."""
    mass = torch.zeros(mesh**3, dtype=torch.int64, device=positions.device)
    for part in torch.split(positions, CHUNK, dim=1):
        cell, share = clouds(part, mesh)
        mass.scatter_add_(0, cell.view(-1).long(), share.view(-1).long())
    return mass.float().mul_(SHARE_UNIT).view(mesh, mesh, mesh)


class Gravity:
    """Forces on particles by a mesh.

    The smoothing by clouds, once when mass is spread and once when forces are read, is divided out.
    """

    def __init__(self, mesh: int, device: torch.device | None = None) -> None:
        self.mesh = mesh
        self._potential = inverse_square(mesh, device, window="cloud").mul_(mesh / (2.0 * np.pi))
        self._axes = gradient_axes(mesh, device)

    def __call__(self, positions: Tensor) -> Tensor:
        """Acceleration -grad phi with laplace(phi) = delta at particles (3 x P), both in mesh cells."""
        mesh = self.mesh
        waves = torch.fft.rfftn(paint(positions, mesh).mul_(mesh**3 / positions.shape[1])).mul_(self._potential)
        # One axis after the other: three at once don't fit the cache.
        field = [torch.fft.irfftn(waves * axis, s=(mesh, mesh, mesh)) for axis in self._axes]
        rows = torch.stack(field, dim=-1).view(-1, 3)
        force = torch.empty_like(positions)
        for part, out in zip(torch.split(positions, CHUNK, dim=1), torch.split(force, CHUNK, dim=1), strict=True):
            cell, share = clouds(part, mesh)
            weight = share.t().float().contiguous().mul_(SHARE_UNIT)
            out.copy_(functional.embedding_bag(cell.t().contiguous(), rows, per_sample_weights=weight, mode="sum").t())
        return force


def step_ends(universe: Cosmology, redshifts: tuple[float, ...]) -> list[tuple[float, ...]]:
    """For each redshift, the values of D at the ends of the steps that lead to it.

    Their number depends on redshifts alone, so that nothing jumps between one universe and the next.
    """
    stops = (START_REDSHIFT, *redshifts)
    plan = []
    for before, after in pairwise(stops):
        steps = math.ceil((1.0 / (1.0 + after) - 1.0 / (1.0 + before)) / MAX_STEP)
        ends = np.linspace(universe.growth.first(before), universe.growth.first(after), steps + 1)
        plan.append(tuple(ends[1:].tolist()))
    return plan


def evolve(waves: Tensor, universe: Cosmology, box: Box, redshifts: tuple[float, ...] = REDSHIFTS) -> list[Tensor]:
    """Positions of the particles (3 x P, in cells, within the box) at each redshift, from the waves of their field.

    Particles start at redshift 9 from second-order displacements. A step from D to D + d drifts half the way,
    x += v d/2 with v = dx/dD, kicks, v = alpha v + (1 - alpha) g(x) / (D + d/2), where g = -grad phi,
    laplace(phi) = delta, and drifts the other half. alpha makes v exact to second order:
    alpha = (E'(D + d) - F) / (E'(D) - F), F = (E + E' d/2) / (D + d/2) - (D + d/2); in an Einstein-de Sitter universe
    E = -3/7 D^2. A plane wave moves as Zel'dovich has it whatever the step.
    """
    if not redshifts or list(redshifts) != sorted(set(redshifts), reverse=True) or redshifts[0] >= START_REDSHIFT:
        raise DataError(f"redshifts {redshifts}. Allowed: falling ones below {START_REDSHIFT:g}, from 0.")
    growth = universe.growth
    plan = step_ends(universe, redshifts)
    positions, velocity = _start(waves, universe)
    gravity = Gravity(box.cells, waves.device)
    done, refine_at = growth.first(START_REDSHIFT), growth.first(REFINE_REDSHIFT)
    snapshots, shift = [], 0.0
    for ends in plan:
        for end in ends:
            middle = 0.5 * (done + end)
            if middle > refine_at and gravity.mesh == box.cells:
                gravity = Gravity(box.fine_mesh, waves.device)
            ratio = gravity.mesh / box.cells
            alpha = _damping(growth, done, end)
            positions.add_(velocity, alpha=middle - done)
            # Every other step on a mesh half a cell aside: on the finer mesh, neighbours of a bare lattice fall
            # differently into their cells and attract each other; so they part again.
            acceleration = gravity(positions * ratio + shift)
            shift = 0.5 - shift
            velocity.mul_(alpha).add_(acceleration, alpha=(1.0 - alpha) / (middle * ratio))
            positions.add_(velocity, alpha=end - middle)
            done = end
        snapshots.append(positions.remainder(float(box.cells)))
    return snapshots


def _start(waves: Tensor, universe: Cosmology) -> tuple[Tensor, Tensor]:
    """Positions and dx/dD (3 x P, in cells) at the first redshift, to second order."""
    first, second = displacements(waves)
    d = universe.growth.first(START_REDSHIFT)
    e, e_slope = universe.growth.second(START_REDSHIFT)
    axis = torch.arange(waves.shape[0], dtype=torch.float32, device=waves.device) + 0.5
    lattice = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"))
    return (lattice + d * first + e * second).view(3, -1), (first + e_slope * second).view(3, -1)


def _damping(growth: Growth, begin: float, end: float) -> float:
    """alpha of the kick between two values of D."""
    e, e_slope = growth.second(growth.redshift(begin))
    slope_after = growth.second(growth.redshift(end))[1]
    middle = 0.5 * (begin + end)
    force = (e + e_slope * (middle - begin)) / middle - middle
    return (slope_after - force) / (e_slope - force)


def count_particles(positions: Tensor, cells: int) -> Tensor:
    """Particles in each cell (N x N x N, int16), each in the one that holds it."""
    place = positions.floor().long().remainder_(cells)
    flat = (place[0] * cells + place[1]) * cells + place[2]
    counts = torch.zeros(cells**3, dtype=torch.int32, device=positions.device)
    counts.scatter_add_(0, flat, torch.ones_like(flat, dtype=torch.int32))
    if int(counts.max()) > MAX_COUNT:
        raise DataError(
            f"a cell holds {int(counts.max())} particles, more than the {MAX_COUNT} of int16. Take finer cells."
        )
    return counts.to(torch.int16).view(cells, cells, cells)


def simulate(universe: Cosmology, box: Box, *, seed: tuple[int, ...], device: torch.device | None = None) -> Tensor:
    """Counts of particles (4 x N x N x N, int16) at CosmoFlow's four redshifts."""
    waves = gaussian_field(universe, cells=box.cells, cell_mpc=box.cell_mpc, seed=seed, device=device)
    return torch.stack([count_particles(positions, box.cells) for positions in evolve(waves, universe, box)])
