"""Flat universes of cold matter and a cosmological constant: their parameters, linear power spectrum and growth.

Lengths are comoving Mpc/h, wavenumbers h/Mpc, power (Mpc/h)^3. NumPy in double precision; nothing here knows of grids.
"""

from dataclasses import astuple, dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.quasirandom import SobolEngine

from deepex.errors import DataError

Floats = NDArray[np.float64]

PARAMETERS = ("omega_m", "sigma_8", "n_s", "hubble")
# Omega_m, sigma_8 and n_s as in CosmoFlow (Mathuriya et al., SC18). The Hubble constant is the fourth parameter of the
# set that MLPerf HPC uses; its range here has room on both sides of what supernovae and the microwave background give.
RANGES = {"omega_m": (0.25, 0.35), "sigma_8": (0.78, 0.95), "n_s": (0.90, 1.00), "hubble": (0.57, 0.77)}
OMEGA_BARYON = 0.045  # as in CosmoFlow's own initial conditions, where it does not vary either
CMB_KELVIN = 2.7255
SIGMA_RADIUS_MPC = 8.0
MAX_SOBOL = 1 << 30  # points of torch's Sobol sequence


@dataclass(frozen=True, kw_only=True)
class Cosmology:
    """A flat universe.

    Arguments:
        omega_m: share of matter (baryons with it) in today's energy density.
        sigma_8: today's linear root-mean-square density contrast in spheres of 8 Mpc/h.
        n_s: index of the primordial power spectrum.
        hubble: h, the Hubble constant in 100 km/s/Mpc.

    >>> universe = Cosmology(omega_m=0.3, sigma_8=0.8, n_s=0.96, hubble=0.7)
    >>> round(float(universe.linear_power(np.array([0.1]))[0]))
    5424
    """

    omega_m: float
    sigma_8: float
    n_s: float
    hubble: float

    def __post_init__(self) -> None:
        for name, value in zip(PARAMETERS, astuple(self), strict=True):
            low, high = RANGES[name]
            if not low - 1e-9 <= value <= high + 1e-9:
                raise DataError(f"cosmology with {name} = {value:g}. Allowed: {low:g} to {high:g}.")

    @property
    def values(self) -> Floats:
        """The four parameters in the order of `PARAMETERS`."""
        return np.array(astuple(self), dtype=np.float64)

    @property
    def scaled(self) -> Floats:
        """The four parameters mapped to [-1, 1] over their ranges."""
        low, high = np.array([RANGES[name] for name in PARAMETERS]).T
        return np.asarray(2.0 * (self.values - low) / (high - low) - 1.0)

    @cached_property
    def growth(self) -> "Growth":
        return solve_growth(self.omega_m)

    def linear_power(self, k: Floats, redshift: float = 0.0) -> Floats:
        """P(k) of linear theory, with the amplitude that sigma_8 sets."""
        growth = self.growth.first(redshift)
        return np.asarray(self._amplitude * growth**2 * self._shape(k))

    def _shape(self, k: Floats) -> Floats:
        return np.asarray(k**self.n_s * transfer(k, self) ** 2)

    @cached_property
    def _amplitude(self) -> float:
        log_k = np.linspace(np.log(1e-4), np.log(50.0), 2048)
        k = np.exp(log_k)
        x = k * SIGMA_RADIUS_MPC
        top_hat = 3.0 * (np.sin(x) - x * np.cos(x)) / x**3
        variance = np.trapezoid(k**3 * self._shape(k) * top_hat**2, log_k) / (2.0 * np.pi**2)
        return float(self.sigma_8**2 / variance)


def draw(*, seed: int, number: int) -> Cosmology:
    """Universe `number` of a sequence that fills the four ranges evenly, however many are drawn.

    A scrambled Sobol sequence (Owen, 1998): a function of `seed` and `number` alone.
    """
    if not 0 <= number < MAX_SOBOL:
        raise DataError(f"universe number {number}. Allowed: 0 to {MAX_SOBOL - 1}.")
    engine: Any = SobolEngine(len(PARAMETERS), scramble=True, seed=seed)  # type: ignore[no-untyped-call]  # torch's
    point = engine.fast_forward(number).draw(1, dtype=torch.float64)[0].numpy()
    low, high = np.array([RANGES[name] for name in PARAMETERS]).T
    return Cosmology(**dict(zip(PARAMETERS, (low + (high - low) * point).tolist(), strict=True)))


def transfer(k: Floats, universe: Cosmology) -> Floats:
    """The matter transfer function with acoustic oscillations; 1 for k -> 0.

    T = f_b T_b + f_c T_c, the fitting formulae (2)-(24) of Eisenstein & Hu, Baryonic features in the matter transfer
    function, ApJ 496 (1998). Their wavenumbers are in 1/Mpc; `k` is in h/Mpc.
    """
    wave = np.asarray(k, dtype=np.float64) * universe.hubble
    theta = CMB_KELVIN / 2.7
    matter = universe.omega_m * universe.hubble**2
    baryon = OMEGA_BARYON * universe.hubble**2
    share = OMEGA_BARYON / universe.omega_m

    equality = 2.5e4 * matter / theta**4  # redshift of equal matter and radiation
    k_equality = 7.46e-2 * matter / theta**2
    b1 = 0.313 * matter**-0.419 * (1.0 + 0.607 * matter**0.674)
    b2 = 0.238 * matter**0.223
    drag = 1291.0 * matter**0.251 / (1.0 + 0.659 * matter**0.828) * (1.0 + b1 * baryon**b2)
    ratio_drag, ratio_equality = (31.5 * baryon / theta**4 * 1e3 / z for z in (drag, equality))
    root = np.sqrt(1.0 + ratio_drag) + np.sqrt(ratio_drag + ratio_equality)
    horizon = 2.0 / (3.0 * k_equality) * np.sqrt(6.0 / ratio_equality) * np.log(root / (1.0 + np.sqrt(ratio_equality)))
    silk = 1.6 * baryon**0.52 * matter**0.73 * (1.0 + (10.4 * matter) ** -0.95)

    q = wave / (13.41 * k_equality)
    cold = _cold_matter(q, wave * horizon, matter, share)
    y = (1.0 + equality) / (1.0 + drag)
    g = y * (-6.0 * np.sqrt(1.0 + y) + (2.0 + 3.0 * y) * np.log((np.sqrt(1.0 + y) + 1.0) / (np.sqrt(1.0 + y) - 1.0)))
    alpha_b = 2.07 * k_equality * horizon * (1.0 + ratio_drag) ** -0.75 * g
    beta_b = 0.5 + share + (3.0 - 2.0 * share) * np.sqrt((17.2 * matter) ** 2 + 1.0)
    node = 8.41 * matter**0.435
    phase = wave * horizon
    shifted = phase / np.cbrt(1.0 + (node / phase) ** 3)
    bessel = np.sinc(shifted / np.pi)
    falling = alpha_b / (1.0 + (beta_b / phase) ** 3) * np.exp(-((wave / silk) ** 1.4))
    baryons = (_pressureless(q, 1.0, 1.0) / (1.0 + (phase / 5.2) ** 2) + falling) * bessel
    return np.asarray(share * baryons + (1.0 - share) * cold)


def _cold_matter(q: Floats, phase: Floats, matter: float, share: float) -> Floats:
    """T_c, equations (9)-(12) and (17)-(18)."""
    a1 = (46.9 * matter) ** 0.670 * (1.0 + (32.1 * matter) ** -0.532)
    a2 = (12.0 * matter) ** 0.424 * (1.0 + (45.0 * matter) ** -0.582)
    alpha = a1**-share * a2 ** -(share**3)
    b1 = 0.944 / (1.0 + (458.0 * matter) ** -0.708)
    b2 = (0.395 * matter) ** -0.0266
    beta = 1.0 / (1.0 + b1 * ((1.0 - share) ** b2 - 1.0))
    f = 1.0 / (1.0 + (phase / 5.4) ** 4)
    return np.asarray(f * _pressureless(q, 1.0, beta) + (1.0 - f) * _pressureless(q, alpha, beta))


def _pressureless(q: Floats, alpha: float, beta: float) -> Floats:
    """T_0, equations (10), (19) and (20)."""
    logarithm = np.log(np.e + 1.8 * beta * q)
    c = 14.2 / alpha + 386.0 / (1.0 + 69.9 * q**1.08)
    return np.asarray(logarithm / (logarithm + c * q**2))


@dataclass(frozen=True, kw_only=True)
class Growth:
    """First- and second-order growth against ln a: D with D(today) = 1, and E, about -3/7 D^2, with dE/dD."""

    log_a: Floats
    d1: Floats
    d2: Floats
    d2_slope: Floats

    def first(self, redshift: float) -> float:
        """D at a redshift."""
        return self._at(redshift, self.d1)

    def second(self, redshift: float) -> tuple[float, float]:
        """E and dE/dD at a redshift."""
        return self._at(redshift, self.d2), self._at(redshift, self.d2_slope)

    def redshift(self, d1: float) -> float:
        """The redshift at which D has this value."""
        return float(np.exp(-np.interp(np.log(d1), np.log(self.d1), self.log_a)) - 1.0)

    def _at(self, redshift: float, curve: Floats) -> float:
        furthest = float(np.exp(-self.log_a[0]) - 1.0)
        if not 0.0 <= redshift <= furthest:
            raise DataError(f"redshift {redshift:g}. Allowed: 0 to {furthest:.0f}.")
        # The curves are nearly powers of a, so that their logarithms are nearly straight.
        return float(np.sign(curve[-1]) * np.exp(np.interp(-np.log1p(redshift), self.log_a, np.log(np.abs(curve)))))


@lru_cache(maxsize=64)
def solve_growth(omega_m: float, steps: int = 512) -> Growth:
    """Integrate the growth of small densities, from a = 0.001, by Runge-Kutta in x = ln a.

    D'' + (2 + H'/H) D' = 3/2 Omega_m(a) D and E'' + (2 + H'/H) E' = 3/2 Omega_m(a) (E - D^2), with D = a and
    E = -3/7 a^2 in the beginning (Bouchet et al., A&A 296, 1995).
    """

    def slope(x: float, state: Floats) -> Floats:
        share = omega_m / (omega_m + (1.0 - omega_m) * np.exp(3.0 * x))
        d, d_slope, e, e_slope = state
        drag = 2.0 - 1.5 * share
        pull = 1.5 * share
        return np.array([d_slope, pull * d - drag * d_slope, e_slope, pull * (e - d * d) - drag * e_slope])

    log_a = np.linspace(np.log(1e-3), 0.0, steps + 1)
    h = float(log_a[1] - log_a[0])
    a = 1e-3
    states = [np.array([a, a, -3.0 / 7.0 * a * a, -6.0 / 7.0 * a * a])]
    for x in log_a[:-1]:
        s = states[-1]
        k1 = slope(x, s)
        k2 = slope(x + h / 2, s + h / 2 * k1)
        k3 = slope(x + h / 2, s + h / 2 * k2)
        k4 = slope(x + h, s + h * k3)
        states.append(s + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4))
    d, d_slope, e, e_slope = np.array(states).T
    today = d[-1]
    return Growth(log_a=log_a, d1=d / today, d2=e / today**2, d2_slope=e_slope / d_slope / today)
