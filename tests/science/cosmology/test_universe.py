"""Parameters, the linear power spectrum and growth, against CAMB and closed forms."""

import numpy as np
import pytest

from deepex.errors import DataError
from deepex.science.cosmology.checks import compare_transfer
from deepex.science.cosmology.universe import PARAMETERS, RANGES, Cosmology, draw, transfer

UNIVERSE = Cosmology(omega_m=0.3, sigma_8=0.82, n_s=0.96, hubble=0.68)
CORNERS = (
    UNIVERSE,
    Cosmology(omega_m=0.25, sigma_8=0.78, n_s=0.9, hubble=0.57),
    Cosmology(omega_m=0.35, sigma_8=0.95, n_s=1.0, hubble=0.77),
    Cosmology(omega_m=0.25, sigma_8=0.95, n_s=1.0, hubble=0.77),
)


def sigma_8_of(universe: Cosmology) -> float:
    """The integral of P(k) over the top hat, on other points than the code's own."""
    k = np.geomspace(1e-4, 20.0, 7001)
    x = 8.0 * k
    top_hat = 3.0 * (np.sin(x) / x**3 - np.cos(x) / x**2)
    return float(np.sqrt(np.trapezoid(k**2 * universe.linear_power(k) * top_hat**2, k) / (2 * np.pi**2)))


@pytest.mark.parametrize("universe", CORNERS)
def test_power_has_the_amplitude_that_sigma_8_asks_for(universe: Cosmology) -> None:
    assert sigma_8_of(universe) == pytest.approx(universe.sigma_8, rel=2e-3)


def test_transfer_is_one_for_long_waves_and_wiggles_for_shorter() -> None:
    assert transfer(np.array([1e-5]), UNIVERSE)[0] == pytest.approx(1.0, abs=2e-3)
    k = np.linspace(0.03, 0.25, 400)
    smooth = np.polynomial.Polynomial.fit(np.log(k), np.log(transfer(k, UNIVERSE)), 3)
    wiggles = np.log(transfer(k, UNIVERSE)) - smooth(np.log(k))
    assert np.count_nonzero(np.diff(np.sign(wiggles))) >= 4  # acoustic oscillations
    assert np.abs(wiggles).max() < 0.05


@pytest.mark.parametrize("universe", CORNERS[2:])
def test_linear_power_is_within_5_percent_of_cambs(universe: Cosmology) -> None:
    ratios = [row["ratio"] for row in compare_transfer(universe, np.geomspace(0.006, 2.0, 30).tolist())]
    assert max(abs(ratio - 1.0) for ratio in ratios) < 0.05
    assert np.mean(np.abs(np.array(ratios) - 1.0)) < 0.03


@pytest.mark.parametrize("universe", CORNERS)
def test_first_growth_is_the_integral_of_heath(universe: Cosmology) -> None:
    def heath(a: float) -> float:
        def expansion(x: np.ndarray) -> np.ndarray:
            return np.sqrt(universe.omega_m / x**3 + 1.0 - universe.omega_m)

        x = np.linspace(1e-6, a, 20001)
        return float(expansion(np.array(a)) * np.trapezoid(1.0 / (x * expansion(x)) ** 3, x))

    for redshift in (0.5, 1.5, 3.0, 9.0):
        expected = heath(1.0 / (1.0 + redshift)) / heath(1.0)
        assert universe.growth.first(redshift) == pytest.approx(expected, rel=1e-4)


def test_second_growth_follows_its_known_approximation() -> None:
    growth = UNIVERSE.growth
    early, slope = growth.second(99.0)
    assert early == pytest.approx(-3.0 / 7.0 * growth.first(99.0) ** 2, rel=1e-3)
    assert slope == pytest.approx(-6.0 / 7.0 * growth.first(99.0), rel=1e-3)
    # Bouchet et al. 1995: -3/7 Omega(a)^(-1/143) D^2
    assert growth.second(0.0)[0] == pytest.approx(-3.0 / 7.0 * 0.3 ** (-1 / 143), rel=2e-3)
    step = 1e-3
    numeric = (growth.second(0.5)[0] - growth.second(0.5 + step)[0]) / (growth.first(0.5) - growth.first(0.5 + step))
    assert growth.second(0.5)[1] == pytest.approx(numeric, rel=5e-3)


def test_the_redshift_of_a_growth_is_found_again() -> None:
    for redshift in (0.0, 0.7, 3.0, 9.0):
        assert UNIVERSE.growth.redshift(UNIVERSE.growth.first(redshift)) == pytest.approx(redshift, abs=1e-4)


def test_draws_fill_the_ranges_and_depend_on_seed_and_number_alone() -> None:
    values = np.array([draw(seed=3, number=n).values for n in range(64)])
    low, high = np.array([RANGES[name] for name in PARAMETERS]).T
    for column in ((values - low) / (high - low)).T:
        counts = np.histogram(column, bins=8, range=(0.0, 1.0))[0]
        assert counts.min() == counts.max() == 8  # random numbers would not be so even
    assert np.array_equal(draw(seed=3, number=40).values, values[40])
    assert not np.array_equal(draw(seed=4, number=40).values, values[40])


def test_scaled_parameters_run_from_minus_one_to_one() -> None:
    ends = [Cosmology(**{name: RANGES[name][end] for name in PARAMETERS}).scaled for end in (0, 1)]
    assert np.allclose(ends[0], -1.0)
    assert np.allclose(ends[1], 1.0)


@pytest.mark.parametrize(("name", "value"), [("omega_m", 0.1), ("sigma_8", 1.2), ("n_s", 0.8), ("hubble", 70.0)])
def test_parameters_outside_their_ranges_are_refused(name: str, value: float) -> None:
    with pytest.raises(DataError, match=rf"{name} = {value:g}\. Allowed: {RANGES[name][0]:g} to"):
        Cosmology(**{"omega_m": 0.3, "sigma_8": 0.8, "n_s": 0.95, "hubble": 0.7, name: value})


def test_negative_redshifts_and_numbers_are_refused() -> None:
    with pytest.raises(DataError, match="redshift -1"):
        UNIVERSE.growth.first(-1.0)
    with pytest.raises(DataError, match=r"redshift -0\.5"):
        UNIVERSE.linear_power(np.array([0.1]), redshift=-0.5)
    with pytest.raises(DataError, match="universe number -1"):
        draw(seed=0, number=-1)
