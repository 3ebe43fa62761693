"""The particle mesh: exact where theory is exact, and near linear theory and halofit where they hold."""

from typing import Any

import numpy as np
import pytest
import torch

from deepex.errors import DataError
from deepex.science.cosmology.checks import (
    Measurement,
    compare_growth,
    compare_with_halofit,
    compare_with_linear,
    measure,
)
from deepex.science.cosmology.particle_mesh import (
    REDSHIFTS,
    Box,
    Gravity,
    count_particles,
    evolve,
    paint,
    simulate,
    step_ends,
)
from deepex.science.cosmology.universe import Cosmology

UNIVERSE = Cosmology(omega_m=0.3, sigma_8=0.82, n_s=0.96, hubble=0.68)


@pytest.fixture(scope="module")
def measured() -> Measurement:
    return measure(UNIVERSE, Box(cells=64, cell_mpc=4.0))


def test_long_waves_follow_linear_theory_within_3_percent(measured: Measurement) -> None:
    rows = compare_with_linear(measured, max_k=0.06)
    assert len(rows) >= 2
    for row in rows:
        for redshift in REDSHIFTS:
            assert row[f"z={redshift:g}"] == pytest.approx(1.0, abs=0.03)


def test_growth_between_redshifts_is_linear_theorys_within_1_percent(measured: Measurement) -> None:
    rows = compare_growth(measured, max_k=0.06)
    assert [(row["from"], row["to"]) for row in rows] == [(3.0, 1.5), (1.5, 0.5), (0.5, 0.0)]
    for row in rows:
        assert row["ratio"] == pytest.approx(1.0, abs=0.01)


def test_power_is_halofits_within_10_percent(measured: Measurement) -> None:
    rows = compare_with_halofit(measured, max_k=0.4)
    assert rows[-1]["k"] > 0.35
    for row in rows:
        for redshift in REDSHIFTS:
            assert row[f"z={redshift:g}"] == pytest.approx(1.0, abs=0.10)


def test_a_plane_wave_moves_as_zeldovich_has_it() -> None:
    """No shell crosses before today, so that q + D psi is exact until then."""
    cells, contrast = 32, 0.6
    phase = torch.arange(cells) * (2 * torch.pi / cells)
    density = contrast * torch.cos(phase).view(-1, 1, 1).expand(cells, cells, cells).contiguous()
    displacement = -contrast * torch.sin(phase) * cells / (2 * torch.pi)
    snapshots = evolve(torch.fft.rfftn(density), UNIVERSE, Box(cells=cells, cell_mpc=4.0))
    lattice = torch.arange(cells) + 0.5
    for redshift, positions in zip(REDSHIFTS, snapshots, strict=True):
        moved = positions.view(3, cells, cells, cells)[0, :, 7, 9] - lattice
        moved = (moved + cells / 2).remainder(cells) - cells / 2
        growth = float((moved * displacement).sum() / displacement.square().sum())
        assert growth == pytest.approx(UNIVERSE.growth.first(redshift), rel=0.005)
        rest = (moved - growth * displacement).square().mean().sqrt()
        assert float(rest) < 0.1  # cells: the grain of the mesh
    # Hardly anything moves along the other axes.
    assert float((snapshots[-1].view(3, cells, cells, cells)[1, 3, :, 5] - lattice).abs().max()) < 0.1


def test_forces_of_a_wave_are_those_of_poissons_equation() -> None:
    mesh = 32
    lattice = torch.stack(torch.meshgrid(*[torch.arange(float(mesh)) + 0.5] * 3, indexing="ij")).view(3, -1)
    phase = 2 * torch.pi * lattice / mesh
    amplitude = 0.05
    moved = lattice.clone()
    moved[1] -= amplitude * torch.sin(2 * phase[1])  # delta = amplitude k cos, to first order
    force = Gravity(mesh)(moved)
    # -grad phi with laplace(phi) = delta is the displacement itself, to first order.
    assert force[1] == pytest.approx(moved[1] - lattice[1], abs=0.03 * amplitude)
    assert float(force[0].abs().max()) < 0.02 * amplitude


def test_mass_is_conserved_exactly() -> None:
    universe = Cosmology(omega_m=0.35, sigma_8=0.95, n_s=1.0, hubble=0.77)
    counts = simulate(universe, Box(cells=32, cell_mpc=3.0), seed=(1, 2))
    assert counts.dtype == torch.int16
    assert counts.shape == (4, 32, 32, 32)
    assert counts.sum(dim=(1, 2, 3)).tolist() == [32**3] * 4
    assert int(counts.min()) == 0
    # Matter clusters as time goes on.
    variance = counts.double().var(dim=(1, 2, 3))
    assert (variance.diff() > 0).all()


def test_clouds_lose_nothing_and_stand_where_the_particles_are() -> None:
    random = torch.Generator().manual_seed(1)
    positions = (torch.rand(3, 50_000, generator=random) - 0.3) * 40  # also outside the box on both sides
    mass = paint(positions, 24)
    assert float(mass.double().sum()) == pytest.approx(50_000, rel=1e-7)
    single = paint(torch.tensor([[23.75], [5.0], [7.5]]), 24)
    assert single[23, 5, 7] == 0.125
    assert single[0, 5, 8] == 0.375
    assert single.sum() == 1.0


def test_painting_does_not_depend_on_the_order_of_particles() -> None:
    random = torch.Generator().manual_seed(2)
    positions = torch.rand(3, 80_000, generator=random) * 16
    shuffled = positions[:, torch.randperm(80_000, generator=random)]
    assert torch.equal(paint(positions, 16), paint(shuffled, 16))


def test_a_seed_gives_the_same_counts_and_another_gives_others() -> None:
    box = Box(cells=32, cell_mpc=4.0)
    first, again, other = (simulate(UNIVERSE, box, seed=seed) for seed in ((0, 1), (0, 1), (0, 2)))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_particles_at_the_edge_are_counted_once() -> None:
    positions = torch.tensor([[0.0, 8.0, 7.999], [0.0, 8.0, 0.5], [0.0, 8.0, 0.5]])
    counts = count_particles(positions, 8)
    assert counts[0, 0, 0] == 2
    assert counts[7, 0, 0] == 1
    with pytest.raises(DataError, match="40000 particles"):
        count_particles(torch.zeros(3, 40_000), 8)


def test_ten_steps_lead_to_the_four_redshifts_in_every_universe() -> None:
    for omega_m in (0.25, 0.3, 0.35):
        universe = Cosmology(omega_m=omega_m, sigma_8=0.8, n_s=0.95, hubble=0.7)
        plan = step_ends(universe, REDSHIFTS)
        assert [len(ends) for ends in plan] == [2, 2, 3, 3]
        assert [ends[-1] for ends in plan] == pytest.approx([universe.growth.first(z) for z in REDSHIFTS])
        assert np.diff(np.concatenate(plan)).min() > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cells": 66, "cell_mpc": 3.0}, "66 cells a side.*Near: 64, 72"),
        ({"cells": 50, "cell_mpc": 3.0}, "50 cells a side.*multiples of 4"),
        ({"cells": 4096, "cell_mpc": 3.0}, "4096 cells a side.*800"),
        ({"cells": 64, "cell_mpc": 10.0}, "cells of 10 Mpc/h.*7.85.*Nyquist"),
        ({"cells": 64, "cell_mpc": 0.5}, "cells of 0.5 Mpc/h.*more steps"),
        ({"cells": 32, "cell_mpc": 2.0}, "64 Mpc/h wide.*96 and more"),
    ],
)
def test_boxes_that_cannot_be_right_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Box(**settings)


@pytest.mark.parametrize("redshifts", [(), (0.0, 1.0), (3.0, 3.0), (9.0, 0.0), (1.0, -0.5)])
def test_redshifts_must_fall_from_the_start_to_today(redshifts: tuple[float, ...]) -> None:
    waves = torch.zeros(32, 32, 17, dtype=torch.complex64)
    with pytest.raises(DataError, match="redshift"):
        evolve(waves, UNIVERSE, Box(cells=32, cell_mpc=4.0), redshifts)
