"""The simulator agrees with abTEM on a tilted crystal, shows a crystal's symmetry, and refuses what can't be."""

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

from deepex.errors import DataError
from deepex.science.diffraction.crystals import (
    CRYSTALS,
    Crystal,
    build_crystal,
    from_atoms,
    interaction_constant,
    project_potential,
    wavelength_angstrom,
)
from deepex.science.diffraction.microscope import Microscope, Probes
from deepex.science.diffraction.multislice import Simulator

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = Microscope(
    box_angstrom=9, min_thickness_angstrom=20, max_thickness_angstrom=60, sampling_angstrom=0.16, pixel_mrad=0.5
)


def probe(
    semi_angle: float = 8.0,
    defocus: float = 0.0,
    position: tuple[float, float] = (0.0, 0.0),
    tilt: tuple[float, float] = (0.0, 0.0),
) -> Probes:
    return Probes(
        semi_angle_mrad=torch.tensor([semi_angle]),
        defocus_angstrom=torch.tensor([defocus]),
        position_angstrom=torch.tensor([position]),
        tilt_mrad=torch.tensor([tilt]),
    )


def test_a_tilted_crystal_is_that_of_abtem() -> None:
    """Here the cone is tilted, there the propagator; the same frequencies are lit if the tilt is one of them."""
    abtem: Any = import_module("abtem")
    crystal = build_crystal("SrTiO3")
    simulator = Simulator(crystal, Microscope(box_angstrom=12, min_thickness_angstrom=90, max_thickness_angstrom=100))
    steps, cells = (2, -2), 24
    tilt = [1e3 * wavelength_angstrom(200) * n / box for n, box in zip(steps, simulator.grid.box, strict=True)]
    found = simulator.intensities(probe(7.0, 50.0, (0.9, 0.4), (tilt[0], tilt[1])), torch.tensor([[cells]]))[0, 0]
    slices = project_potential(crystal, simulator.grid.points).numpy()
    layer = abtem.PotentialArray(
        np.tile(slices, (1, *simulator.grid.cells)), slice_thickness=crystal.slice_angstrom, extent=simulator.grid.box
    )
    beam = abtem.Probe(energy=200e3, semiangle_cutoff=7.0, defocus=50.0, tilt=(tilt[0], tilt[1]))
    beam.grid.match(layer)
    waves = beam.multislice(
        abtem.CrystalPotential(layer, (1, 1, cells)), scan=abtem.CustomScan([(0.9, 0.4)]), lazy=False
    )
    theirs = np.asarray(waves.diffraction_patterns(max_angle="full").array).squeeze()
    middle = [n // 2 for n in theirs.shape]
    ours = found.numpy()[ours_middle(found.shape, steps)]
    expected = theirs[middle[0] - 12 : middle[0] + 13, middle[1] - 8 : middle[1] + 9]
    assert np.abs(ours - expected).sum() / expected.sum() < 0.01


def ours_middle(shape: torch.Size, steps: tuple[int, int]) -> tuple[slice, slice]:
    """25 x 17 frequencies around a tilted beam."""
    x, y = shape[0] // 2 + steps[0], shape[1] // 2 + steps[1]
    return slice(x - 12, x + 13), slice(y - 8, y + 9)


def test_constants_are_those_of_the_textbook() -> None:
    assert wavelength_angstrom(200) == pytest.approx(0.025079, abs=1e-6)  # Kirkland, table 2.1
    assert interaction_constant(200) == pytest.approx(7.2884e-4, rel=1e-4)


def test_symmetry_is_seen_and_a_tilt_breaks_it() -> None:
    simulator = Simulator(build_crystal("Al"), SMALL)

    def unevenness(tilt: tuple[float, float]) -> float:
        pattern = simulator.intensities(probe(tilt=tilt), torch.tensor([[12]]))[0, 0]
        reach = min(pattern.shape) // 2
        x, y = (n // 2 for n in pattern.shape)
        square = pattern[x - reach : x + reach + 1, y - reach : y + reach + 1]
        return float((square - square.rot90()).abs().sum() / square.sum())

    assert unevenness((0.0, 0.0)) < 1e-4
    assert unevenness((4.0, 0.0)) > 0.2


@pytest.mark.parametrize("name", ["Al", "Fe"])
def test_the_camera_sees_reflections_where_bragg_puts_them(name: str) -> None:
    """Same pixels for all crystals: the (200) disc stands 2 wavelength / edge from the middle."""
    crystal = build_crystal(name)
    microscope = Microscope(
        pixel_mrad=0.5,
        box_angstrom=24,
        min_thickness_angstrom=20,
        max_thickness_angstrom=30,
        max_semi_angle_mrad=3,
        max_tilt_mrad=0,
    )
    pattern = Simulator(crystal, microscope).patterns(probe(3.0), torch.tensor([[25.0]]))[0, 0]
    distance = 1e3 * 2 * wavelength_angstrom(200) / crystal.edges_angstrom[0] / microscope.pixel_mrad
    rows = torch.arange(120.0) - 59.5
    disc = (rows[:, None] - distance) ** 2 + (torch.arange(85.0) - 42) ** 2 <= 8**2
    weight = torch.where(disc, pattern, 0.0)
    assert float((weight.sum(dim=1) * rows).sum() / weight.sum()) == pytest.approx(distance, abs=0.5)


def test_the_camera_counts_every_electron_that_falls_on_it() -> None:
    simulator = Simulator(build_crystal("C"), SMALL)
    probes = probe(6.0, tilt=(1.0, 0.5))
    share = simulator.intensities(probes, torch.tensor([[10]]))[0, 0]
    assert float(simulator.patterns(probes, torch.tensor([[35.7]])).sum()) == pytest.approx(
        float(share.sum()), rel=0.03
    )


def test_a_probe_is_one_beam_of_the_angle_asked_for() -> None:
    simulator = Simulator(build_crystal("Al"), SMALL)
    beam = simulator.illuminate(probe(10.0, 100.0, (1.0, 2.0))).abs().square()[0]
    assert float(beam.sum()) == pytest.approx(1, abs=1e-5)
    solid = (beam > 0.5 * beam.max()).sum() * (1e3 * wavelength_angstrom(200)) ** 2 / math.prod(simulator.grid.box)
    assert math.sqrt(float(solid) / math.pi) == pytest.approx(10, rel=0.1)


DENSITIES = {  # gram a cubic centimetre at room temperature: handbook values, found by weighing
    "Al": 2.70,
    "Cu": 8.96,
    "Ag": 10.49,
    "Au": 19.30,
    "Pt": 21.45,
    "Ni": 8.91,
    "Fe": 7.87,
    "W": 19.25,
    "Nb": 8.57,
    "Si": 2.33,
    "Ge": 5.32,
    "C": 3.51,
    "NaCl": 2.17,
    "MgO": 3.58,
    "PbTe": 8.16,
    "GaAs": 5.32,
    "InP": 4.81,
    "ZnS": 4.09,
    "Mg": 1.74,
    "Ti": 4.51,
    "Zn": 7.14,
    "GaN": 6.15,
    "SrTiO3": 5.12,
    "BaTiO3": 6.02,
    "CsCl": 3.99,
    "CaF2": 3.18,
    "TiO2": 4.23,
}


@pytest.mark.parametrize("name", CRYSTALS)
def test_a_crystal_weighs_what_it_weighs_in_the_laboratory(name: str) -> None:
    from ase.data import atomic_masses

    crystal = build_crystal(name)
    grams = atomic_masses[crystal.numbers].sum() * 1.66053907e-24
    assert grams / (np.prod(crystal.edges_angstrom) * 1e-24) == pytest.approx(DENSITIES[name], rel=0.02)


def test_there_are_27_crystals_whose_atoms_stand_inside_slices() -> None:
    assert len(CRYSTALS) == len(set(CRYSTALS)) == 27
    for name in CRYSTALS:
        crystal = build_crystal(name)
        height = crystal.positions_angstrom[:, 2] / crystal.slice_angstrom
        assert (np.abs(height - np.round(height)) > 0.1).all(), name
    assert build_crystal("Si").centred
    assert not build_crystal("SrTiO3").centred


def atoms(*positions: tuple[float, float, float], numbers: tuple[int, ...] | None = None, edge: float = 4.0) -> Crystal:
    return Crystal(
        name="mine",
        edges_angstrom=(edge, edge, edge),
        numbers=np.asarray(numbers or [14] * len(positions), dtype=np.int64),
        positions_angstrom=np.asarray(positions, dtype=np.float64).reshape(-1, 3),
        slices=2,
    )


def leaning() -> Crystal:
    from ase.build import bulk

    return from_atoms("Cu", bulk("Cu", "fcc", a=3.6), 2)


def simulate(probes: Probes, thickness: float) -> object:
    return Simulator(atoms((1.0, 1.0, 1.0)), SMALL).patterns(probes, torch.tensor([[thickness]]))


@pytest.mark.parametrize(
    ("attempt", "text"),
    [
        (lambda: build_crystal("SrTi03"), "Did you mean 'SrTiO3'.*Allowed: Ag, Al"),
        (lambda: atoms(), "no atoms"),
        (lambda: atoms((0, 0, 0), (0, 0, 3.9)), "atoms 0 and 1 are 0.10 angstrom apart"),
        (lambda: atoms((0, 0, 0), numbers=(0,)), "Allowed: 1 to 103"),
        (lambda: atoms((0, 0, math.nan)), "finite"),
        (lambda: atoms((0, 0, 0), edge=0.0), "edges"),
        (leaning, "not orthogonal"),
        (
            lambda: Simulator(build_crystal("Al"), Microscope(min_thickness_angstrom=1, max_thickness_angstrom=2)),
            "no whole number of its cells of 4.05",
        ),
        (
            lambda: Simulator(build_crystal("Al"), Microscope(max_thickness_angstrom=1e9)),
            "would take .* GiB. Allowed: 8",
        ),
        (lambda: Simulator(build_crystal("Al"), Microscope(box_angstrom=1000)), "smaller box_angstrom"),
        (lambda: Simulator(build_crystal("Al"), Microscope(sampling_angstrom=1e-4)), "coarser sampling"),
        (lambda: simulate(probe(), 1.0), "Allowed: 5 to 15 cells"),
        (lambda: simulate(probe(), 100.0), "Allowed: 5 to 15 cells"),
        (lambda: simulate(probe(semi_angle=13.0), 40.0), "semi-angle of 13 mrad"),
        (lambda: simulate(probe(semi_angle=-1.0), 40.0), "semi-angle"),
        (lambda: simulate(probe(tilt=(6.0, 6.0)), 40.0), "tilt of 8.48"),
    ],
)
def test_what_can_not_be_is_refused_with_the_cure(attempt: Callable[[], object], text: str) -> None:
    with pytest.raises(DataError, match=text):
        attempt()
