"""What the simulation is held against: abTEM's multislice, and the number of electrons.

Nothing here is used to make data; tests and docs/science/atomai.md have its figures.
"""

from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import torch

from deepex.science.diffraction.crystals import (
    BAND_LIMIT,
    Crystal,
    Grid,
    interaction_constant,
    project_potential,
    smooth_size,
    wavelength_angstrom,
)
from deepex.science.diffraction.microscope import Microscope, Probes
from deepex.science.diffraction.multislice import Simulator, multislice


def compare_with_abtem(
    crystal: Crystal, thickness_angstrom: float, microscope: Microscope | None = None, *, refine: int = 0
) -> float:
    """sum |ours - abTEM's| / sum abTEM's, over the frequencies that the detector sees.

    abTEM sends its own probe by its own multislice through the same slices. With `refine` = 0 they hold the same
    potential on the same grid; otherwise abTEM makes its own, on a grid so many times as fine, which shows what our
    grid leaves out as well.
    """
    abtem: Any = import_module("abtem")
    used = microscope or Microscope()
    half = crystal.edges_angstrom[2] / 2
    least, most = max(thickness_angstrom - half, half), thickness_angstrom + half
    ours = Simulator(crystal, replace(used, min_thickness_angstrom=least, max_thickness_angstrom=most))
    x, y = 0.17 * crystal.edges_angstrom[0], 0.28 * crystal.edges_angstrom[1]
    angle, defocus, cells = 0.7 * used.max_semi_angle_mrad, 80.0, ours.cells(torch.tensor([[thickness_angstrom]]))
    probes = Probes(
        semi_angle_mrad=torch.tensor([angle]),
        defocus_angstrom=torch.tensor([defocus]),
        position_angstrom=torch.tensor([[x, y]]),
        tilt_mrad=torch.zeros(1, 2),
    )
    found = ours.intensities(probes, cells)[0, 0].double().numpy()
    if refine:
        layer = abtem.Potential(
            crystal.atoms() * (*ours.grid.cells, 1),
            gpts=tuple(refine * c * p for c, p in zip(ours.grid.cells, ours.grid.points, strict=True)),
            slice_thickness=crystal.slice_angstrom,
            parametrization=abtem.parametrizations.LobatoParametrization(sigmas=used.thermal_angstrom),
        ).build(lazy=False)
    else:
        slices = project_potential(crystal, ours.grid.points, used.thermal_angstrom).numpy()
        tiled = np.tile(slices, (1, *ours.grid.cells))
        layer = abtem.PotentialArray(tiled, slice_thickness=crystal.slice_angstrom, extent=ours.grid.box)
    probe = abtem.Probe(energy=used.kilovolt * 1e3, semiangle_cutoff=angle, defocus=defocus)
    probe.grid.match(layer)
    whole = abtem.CrystalPotential(layer, (1, 1, int(cells)))
    waves = probe.multislice(whole, scan=abtem.CustomScan([(x, y)]), lazy=False)
    pattern = np.asarray(waves.diffraction_patterns(max_angle="full").array, dtype=np.float64).squeeze()
    middle, reach = [n // 2 for n in pattern.shape], ours.seen
    expected = pattern[tuple(slice(m - r, m + r + 1) for m, r in zip(middle, reach, strict=True))]
    return float(np.abs(found - expected).sum() / expected.sum())


def measure_loss(
    crystal: Crystal,
    sampling_angstrom: float,
    thickness_angstrom: float = 500.0,
    dtype: torch.dtype = torch.complex64,
) -> float:
    """The share of a plane wave that is gone behind a crystal, by multislice on a grid.

    Beyond the band limit nothing is carried on: on a grid so fine that nothing is scattered there, only rounding is
    lost; on a coarse one, what went to larger angles than it holds.
    """
    edges = crystal.edges_angstrom[:2]
    x, y = (smooth_size(edge / sampling_angstrom) for edge in edges)
    limit = BAND_LIMIT / 2 * min(x / edges[0], y / edges[1])
    grid = Grid(points=(x, y), cells=(1, 1), edges=edges, centred=crystal.centred, limit=limit)
    kilovolt = Microscope().kilovolt
    potential = project_potential(crystal, grid.points)
    transmission = grid.transmission(potential, interaction_constant(kilovolt), dtype)
    propagator = grid.propagator(wavelength_angstrom(kilovolt), crystal.slice_angstrom, dtype=dtype)
    waves = torch.ones(1, x, y, dtype=dtype)
    for _ in range(round(thickness_angstrom / crystal.edges_angstrom[2])):
        waves = multislice(waves, transmission, propagator)
    return 1 - float(waves.abs().double().square().mean())
