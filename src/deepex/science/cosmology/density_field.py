"""Periodic fields on a cubic grid: Gaussian initial densities, 2LPT displacements, and the power spectrum of a field.

Fields are float32 tensors, N x N x N, on any device; the random numbers come from NumPy, so a seed means the same
everywhere. Lengths are in Mpc/h.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deepex.errors import DataError
from deepex.science.cosmology.universe import Cosmology, Floats

Window = Literal["none", "nearest", "cloud"]  # what a particle's mass is spread over: a point, a cell, eight cells
WINDOW_POWER = {"none": 0, "nearest": 1, "cloud": 2}


def frequencies(cells: int, device: torch.device | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Waves in the box along each axis (whole numbers, float32), shaped to broadcast over a half-complex grid."""
    full = torch.fft.fftfreq(cells, 1.0 / cells, device=device)
    half = torch.arange(cells // 2 + 1, dtype=torch.float32, device=device)
    return full.view(-1, 1, 1), full.view(1, -1, 1), half.view(1, 1, -1)


def squared_frequency(cells: int, device: torch.device | None = None) -> Tensor:
    """n_x^2 + n_y^2 + n_z^2 of each wave: a whole number, so that anything isotropic is a table."""
    x, y, z = frequencies(cells, device)
    return (x * x + y * y + z * z).long()


def gradient_axes(cells: int, device: torch.device | None = None) -> list[Tensor]:
    """i n for each axis, which differentiates a wave in units of the box over 2 pi.

    A wave at the Nyquist frequency has no direction, so its derivative along that axis is 0.
    """
    axes = [torch.where(n.abs() == cells // 2, torch.zeros_like(n), n) for n in frequencies(cells, device)]
    return [torch.complex(torch.zeros_like(n), n) for n in axes]


def inverse_square(cells: int, device: torch.device | None = None, *, window: Window = "none") -> Tensor:
    """1 / n^2 of each wave, 0 for the mean; over the square of a window, once for spreading and once for reading."""
    squared = squared_frequency(cells, device).float()
    squared[0, 0, 0] = torch.inf
    return squared.mul_(window_of(cells, window, device).square_()).reciprocal_()


def window_of(cells: int, window: Window, device: torch.device | None = None) -> Tensor:
    """What spreading particles over cells multiplies each wave by: a power of sinc(n / N) along each axis."""
    x, y, z = (torch.sinc(n / cells).pow_(WINDOW_POWER[window]) for n in frequencies(cells, device))
    return x * y * z


def gaussian_field(
    universe: Cosmology,
    *,
    cells: int,
    cell_mpc: float,
    seed: tuple[int, ...],
    fixed: bool = False,
    inverted: bool = False,
    device: torch.device | None = None,
) -> Tensor:
    """Waves (N x N x N/2+1, as torch.fft.rfftn gives them) of a Gaussian density with today's linear power.

    Arguments:
        seed: whole numbers that together name the realisation.
        fixed: give every wave its mean amplitude, only its phase being random: a mean spectrum from one box.
        inverted: crests for troughs. A fixed field and its inverse have little sampling noise left in their mean
            (Angulo & Pontzen, MNRAS 462, 2016).
    """
    random = np.random.default_rng(np.random.SeedSequence(seed))
    noise = torch.from_numpy(random.standard_normal((cells, cells, cells), dtype=np.float32)).to(device)
    waves = torch.fft.rfftn(noise)
    if fixed:
        waves = waves / waves.abs().clamp_min(1e-30) * cells**1.5
    table = np.zeros(3 * (cells // 2) ** 2 + 1)
    k = 2.0 * np.pi / (cells * cell_mpc) * np.sqrt(np.arange(1, len(table)))
    table[1:] = np.sqrt(universe.linear_power(k) / cell_mpc**3)
    amplitude = torch.from_numpy(table.astype(np.float32)).to(device)[squared_frequency(cells, device)]
    scaled: Tensor = waves * (-amplitude if inverted else amplitude)
    return scaled


def displacements(waves: Tensor) -> tuple[Tensor, Tensor]:
    """First and second order of Lagrangian perturbation theory, each 3 x N x N x N, in cells.

    A particle of the lattice point q stands at q + D psi1 + E psi2, with div psi1 = -delta, psi1 = -grad phi, and
    div psi2 = sum over i < j of (phi_ii phi_jj - phi_ij^2) (Bouchet et al., A&A 296, 1995).
    """
    cells = waves.shape[0]
    shape = (cells, cells, cells)
    axes = gradient_axes(cells, waves.device)
    inverse = inverse_square(cells, waves.device).mul_(cells / (2.0 * math.pi))

    def gradient_of_inverse_laplacian(field: Tensor) -> Tensor:
        return torch.stack([torch.fft.irfftn(field * inverse * axis, s=shape) for axis in axes])

    x, y, z = frequencies(cells, waves.device)
    potential = waves * inverse_square(cells, waves.device)  # phi_ij = n_i n_j / n^2 delta

    def second_derivative(product: Tensor) -> Tensor:
        derivative: Tensor = torch.fft.irfftn(potential * product, s=shape)
        return derivative

    xx, yy, zz = (second_derivative(n * n) for n in (x, y, z))
    source = xx * (yy + zz) + yy * zz
    for product in (x * y, x * z, y * z):
        source -= second_derivative(product).square_()
    return gradient_of_inverse_laplacian(waves), gradient_of_inverse_laplacian(-torch.fft.rfftn(source))


@dataclass(frozen=True, kw_only=True)
class Spectrum:
    """Power in shells of wavenumber; B bins."""

    k: Floats  # B, h/Mpc, mean of the waves in the shell
    power: Floats  # ... x B, (Mpc/h)^3
    waves: NDArray[np.int64]  # B, how many


def linear_edges(cells: int, width: float = 1.0) -> Floats:
    """Edges of shells, in waves a box, of equal width from the longest wave to the Nyquist frequency."""
    return np.arange(0.5, cells // 2 + 0.5, width)


def logarithmic_edges(cells: int, bins: int) -> Floats:
    """Edges of shells, in waves a box, of equal ratio from the longest wave to the Nyquist frequency."""
    edges = np.geomspace(1.0, cells // 2, bins + 1)
    edges[0], edges[-1] = 1.0 - 1e-6, cells // 2 + 1e-6
    populated = np.histogram(np.sqrt(np.unique(squared_frequency(cells).numpy())), edges)[0]
    if not populated.all():
        raise DataError(
            f"{bins} bins of the power spectrum of {cells} cells a side leave a bin without waves. Ask for fewer bins."
        )
    return np.asarray(edges)


def measure_power(
    contrast: Tensor, *, cell_mpc: float, edges: Floats, window: Window = "none", shot_noise_mpc3: float = 0.0
) -> Spectrum:
    """Power spectrum of density contrasts (... x N x N x N), P = V <|delta_k|^2> / N^6, averaged over shells.

    Arguments:
        edges: of the shells, in waves a box.
        window: how particles were spread: its smoothing of each wave is divided out.
        shot_noise_mpc3: is subtracted; volume a particle, if their number is Poisson-like.
    """
    cells = contrast.shape[-1]
    waves = torch.fft.rfftn(contrast, dim=(-3, -2, -1))
    squared = waves.real.square() + waves.imag.square()
    if window != "none":
        squared = squared / window_of(cells, window, contrast.device).square_()
    bins = len(edges) - 1
    limits = torch.from_numpy(edges).to(contrast.device)
    radius = squared_frequency(cells, contrast.device).double().sqrt_().view(-1)
    chosen = ((radius >= limits[0]) & (radius < limits[-1])).nonzero().view(-1)
    radius = radius[chosen]
    shell = torch.bucketize(radius, limits, right=True) - 1
    # A wave and its mirror image carry the same power; the half-complex grid holds both only where n_z is 0 or N/2.
    half = cells // 2
    weight = torch.where(chosen.remainder(half + 1).remainder(half) == 0, 1.0, 2.0).double()

    def total(values: Tensor) -> Floats:
        sums = torch.zeros(bins, dtype=torch.float64, device=values.device)
        return sums.index_add_(0, shell, values.double() * weight).cpu().numpy()

    count = total(torch.ones_like(radius))
    flat = squared.reshape(-1, cells * cells * (half + 1))
    scale = cell_mpc**3 / cells**3
    power = np.stack([total(one[chosen]) for one in flat]) / count * scale - shot_noise_mpc3
    return Spectrum(
        k=total(radius) / count * 2.0 * np.pi / (cells * cell_mpc),
        power=power.reshape(*squared.shape[:-3], bins),
        waves=count.round().astype(np.int64),
    )
