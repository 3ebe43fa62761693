"""Gaussian fields, their displacements and the measurement of power."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from deepex.errors import DataError
from deepex.science.cosmology.density_field import (
    displacements,
    gaussian_field,
    linear_edges,
    logarithmic_edges,
    measure_power,
)
from deepex.science.cosmology.particle_mesh import count_particles, paint
from deepex.science.cosmology.universe import Cosmology

UNIVERSE = Cosmology(omega_m=0.3, sigma_8=0.82, n_s=0.96, hubble=0.68)
CELLS, CELL_MPC = 32, 6.0


def test_a_fixed_field_has_the_linear_power_in_every_bin() -> None:
    waves = gaussian_field(UNIVERSE, cells=CELLS, cell_mpc=CELL_MPC, seed=(1,), fixed=True)
    field = torch.fft.irfftn(waves, s=(CELLS,) * 3)
    found = measure_power(field, cell_mpc=CELL_MPC, edges=linear_edges(CELLS))
    n = np.fft.fftfreq(CELLS, 1.0 / CELLS)
    radius = np.sqrt(n[:, None, None] ** 2 + n[:, None] ** 2 + n**2)
    for number, (low, high) in enumerate(pairwise(linear_edges(CELLS))):
        k = radius[(radius >= low) & (radius < high)] * 2 * np.pi / (CELLS * CELL_MPC)
        assert found.waves[number] == len(k)
        assert found.k[number] == pytest.approx(k.mean())
        assert found.power[number] == pytest.approx(UNIVERSE.linear_power(k).mean(), rel=1e-4)


def test_random_fields_have_the_linear_power_in_the_mean() -> None:
    edges = linear_edges(CELLS, width=3.0)
    ratios = []
    for seed in range(6):
        waves = gaussian_field(UNIVERSE, cells=CELLS, cell_mpc=CELL_MPC, seed=(seed, 5))
        fixed = gaussian_field(UNIVERSE, cells=CELLS, cell_mpc=CELL_MPC, seed=(seed, 5), fixed=True)
        pair = torch.fft.irfftn(torch.stack([waves, fixed]), s=(CELLS,) * 3, dim=(1, 2, 3))
        found = measure_power(pair, cell_mpc=CELL_MPC, edges=edges)
        ratios.append(found.power[0] / found.power[1])
    deviation = np.sqrt(2.0 / (found.waves * len(ratios)))  # of a mean of squares of Gaussian numbers
    assert (np.abs(np.mean(ratios, axis=0) - 1.0) < 4.0 * deviation).all()


def test_fields_depend_on_all_of_their_seed_and_an_inverse_is_one() -> None:
    first, again, other = (
        gaussian_field(UNIVERSE, cells=16, cell_mpc=8.0, seed=seed) for seed in ((1, 2), (1, 2), (2, 1))
    )
    inverse = gaussian_field(UNIVERSE, cells=16, cell_mpc=8.0, seed=(1, 2), inverted=True)
    assert torch.equal(first, again)
    assert torch.equal(first, -inverse)
    assert not torch.allclose(first, other)


def test_first_displacements_thin_out_what_is_dense() -> None:
    waves = gaussian_field(UNIVERSE, cells=CELLS, cell_mpc=CELL_MPC, seed=(1,))
    # Without the Nyquist waves, which have no gradient.
    for axis in range(3):
        waves.index_fill_(axis, torch.tensor([CELLS // 2]), 0.0)
    first, _ = displacements(waves)
    divergence = torch.zeros(CELLS, CELLS, CELLS)
    n = torch.fft.fftfreq(CELLS, 1.0 / CELLS) * 2 * torch.pi / CELLS
    for axis in range(3):
        shape = [1, 1, 1]
        shape[axis] = CELLS
        divergence += torch.fft.ifftn(torch.fft.fftn(first[axis]) * 1j * n.view(shape)).real
    density = torch.fft.irfftn(waves, s=(CELLS,) * 3)
    assert torch.allclose(divergence, -density, atol=1e-4 * float(density.abs().max()))


def test_a_plane_wave_has_no_second_order() -> None:
    x = torch.arange(CELLS) * (2 * torch.pi / CELLS)
    wave = torch.cos(2 * x).view(-1, 1, 1).expand(CELLS, CELLS, CELLS).contiguous()
    first, second = displacements(torch.fft.rfftn(wave))
    assert float(second.abs().max()) < 1e-5 * float(first.abs().max())
    # psi = -sin(k x) / k
    assert torch.allclose(first[0][:, 3, 4], -torch.sin(2 * x) * CELLS / (4 * torch.pi), atol=1e-5)


def test_two_crossed_waves_have_the_second_order_of_the_formula() -> None:
    x = torch.arange(CELLS) * (2 * torch.pi / CELLS)
    wave = torch.cos(x).view(-1, 1, 1) + torch.cos(x).view(1, -1, 1) + torch.zeros(CELLS, CELLS, CELLS)
    _, second = displacements(torch.fft.rfftn(wave))
    # phi_xx phi_yy = cos x cos y, so psi2_x = sin x cos y / 2, in the box over 2 pi
    expected = torch.sin(x).view(-1, 1) * torch.cos(x).view(1, -1) / 2 * CELLS / (2 * torch.pi)
    assert torch.allclose(second[0][:, :, 5], expected, atol=1e-4)


@pytest.mark.parametrize("window", ["nearest", "cloud"])
def test_power_of_random_particles_is_their_shot_noise(window: str) -> None:
    random = torch.Generator().manual_seed(5)
    positions = torch.rand(3, 40_000, generator=random) * CELLS
    mass = count_particles(positions, CELLS).float() if window == "nearest" else paint(positions, CELLS)
    contrast = mass / mass.mean() - 1.0
    noise = (CELLS * CELL_MPC) ** 3 / 40_000
    edges = np.array([4.0, 8.0, 12.0, 16.0])
    found = measure_power(contrast, cell_mpc=CELL_MPC, edges=edges)
    # With all aliases, clouds leave 1 - 2/3 sin^2(pi n / N) of it along each axis (Jing, ApJ 620, 2005).
    n = np.fft.fftfreq(CELLS, 1.0 / CELLS)
    left = 1.0 - (2.0 / 3.0 * np.sin(np.pi * n / CELLS) ** 2 if window == "cloud" else 0.0 * n)
    share = left[:, None, None] * left[:, None] * left
    radius = np.sqrt(n[:, None, None] ** 2 + n[:, None] ** 2 + n**2)
    for number, (low, high) in enumerate(pairwise(edges)):
        expected = noise * share[(radius >= low) & (radius < high)].mean()
        assert found.power[number] == pytest.approx(expected, rel=5.0 / np.sqrt(found.waves[number] / 2))
    less = measure_power(contrast, cell_mpc=CELL_MPC, edges=edges, shot_noise_mpc3=noise)
    assert less.power == pytest.approx(found.power - noise)


def test_the_window_is_divided_out() -> None:
    lattice = torch.stack(torch.meshgrid(*[torch.arange(96.0) + 0.5] * 3, indexing="ij")).view(3, -1) * (CELLS / 96)
    lattice[0] += 0.3 * torch.sin(2 * torch.pi * 6 * lattice[0] / CELLS)
    powers = {}
    for name, cells in (("coarse", CELLS), ("fine", 4 * CELLS)):
        mass = paint(lattice * (cells / CELLS), cells)
        mass = mass / mass.mean() - 1.0
        cell = CELL_MPC * CELLS / cells
        edges = np.array([5.5, 6.5])
        powers[name] = measure_power(mass, cell_mpc=cell, edges=edges, window="cloud").power[0]
        powers[name + " smooth"] = measure_power(mass, cell_mpc=cell, edges=edges).power[0]
    assert powers["coarse"] == pytest.approx(powers["fine"], rel=0.03)
    assert powers["coarse smooth"] < 0.8 * powers["fine"]


def test_power_of_a_wave_is_in_its_shell_and_bins_count_all_waves() -> None:
    x = torch.arange(CELLS) * (2 * torch.pi / CELLS)
    wave = torch.cos(5 * x).view(1, 1, -1).expand(CELLS, CELLS, CELLS).contiguous()
    found = measure_power(wave, cell_mpc=CELL_MPC, edges=linear_edges(CELLS))
    total = found.power * found.waves / (CELLS * CELL_MPC) ** 3
    assert total[4] == pytest.approx(0.5, rel=1e-5)  # the variance of a cosine
    assert np.delete(total, 4) == pytest.approx(0.0, abs=1e-6)
    assert found.waves[0] == 18  # n^2 = 1: six waves, n^2 = 2: twelve


def test_bins_without_waves_are_refused() -> None:
    assert len(logarithmic_edges(32, 10)) == 11
    with pytest.raises(DataError, match=r"30 bins .* 16 cells .* fewer bins"):
        logarithmic_edges(16, 30)
