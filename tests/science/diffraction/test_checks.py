"""The simulator agrees with abTEM, and keeps its electrons."""

import pytest

from deepex.science.diffraction.checks import compare_with_abtem, measure_loss
from deepex.science.diffraction.crystals import build_crystal
from deepex.science.diffraction.microscope import Microscope

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = Microscope(
    box_angstrom=9, min_thickness_angstrom=20, max_thickness_angstrom=60, sampling_angstrom=0.16, pixel_mrad=0.5
)


@pytest.mark.parametrize("name", ["Al", "W", "Si", "NaCl", "GaAs", "Mg", "SrTiO3", "TiO2"])
def test_patterns_are_those_of_abtems_multislice(name: str) -> None:
    assert compare_with_abtem(build_crystal(name), 60.0, SMALL) < 1e-3


def test_a_thick_heavy_crystal_still_agrees_with_abtem() -> None:
    assert compare_with_abtem(build_crystal("Au"), 300.0, Microscope(box_angstrom=5)) < 1e-3


@pytest.mark.parametrize("name", ["Al", "Si", "MgO", "SrTiO3", "Mg"])
def test_patterns_agree_with_abtem_working_alone_on_a_finer_grid(name: str) -> None:
    """Other potentials, other grid, other band limit: what our grid leaves out is less than a hundredth."""
    assert compare_with_abtem(build_crystal(name), 80.0, Microscope(box_angstrom=6), refine=2) < 0.01


@pytest.mark.parametrize(("name", "per_angstrom"), [("Si", 20), ("Al", 20), ("Au", 30)])
def test_electrons_are_conserved_over_500_angstrom(name: str, per_angstrom: int) -> None:
    """With a grid fine enough that nothing is scattered beyond the band limit, only rounding remains."""
    assert abs(measure_loss(build_crystal(name), 1 / per_angstrom)) < 1e-5


def test_a_coarse_grid_loses_what_goes_to_larger_angles() -> None:
    assert 0.1 < measure_loss(build_crystal("Au"), 0.105) < 0.2
