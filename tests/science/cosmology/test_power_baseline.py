"""Ridge regression from power spectra."""

import numpy as np
import pytest
from numpy.typing import NDArray

from deepex.errors import DataError
from deepex.science.cosmology import power_baseline

Array = NDArray[np.float64]


def make(*, boxes: int, cubes: int, noise: float, curved: float = 0.0) -> tuple[Array, Array, NDArray[np.int64]]:
    """Spectra whose amplitude and tilt, each cube with noise of its own, are what is to be found."""
    random = np.random.default_rng(1)
    target = random.uniform(-1.0, 1.0, (boxes, 2)).repeat(cubes, axis=0)
    slope = np.linspace(-1.0, 1.0, 5)
    log_power = target[:, :1] + (target[:, 1:] + curved * target[:, :1] ** 2) * slope
    power = np.exp(log_power + noise * random.standard_normal(log_power.shape))[:, None, :].repeat(2, axis=1)
    return power, target, np.arange(boxes).repeat(cubes)


def test_a_linear_law_is_found_to_the_noise() -> None:
    power, target, box = make(boxes=60, cubes=4, noise=0.05)
    train = box < 40
    model = power_baseline.fit(power[train], target[train], box[train])
    error = np.abs(model.predict(power[~train]) - target[~train]).mean(axis=0)
    assert (error < 0.05).all()
    assert model.error == pytest.approx(error, rel=0.3)  # cross-validation says what the unseen boxes will show


def test_products_enter_where_they_help_and_only_there() -> None:
    power, target, box = make(boxes=120, cubes=4, noise=0.03, curved=0.8)
    train = box < 80
    chosen = power_baseline.fit(power[train], target[train], box[train])
    straight = power_baseline.fit(power[train], target[train], box[train], quadratic=(False,))
    assert chosen.quadratic
    errors = [np.abs(model.predict(power[~train]) - target[~train]).mean() for model in (chosen, straight)]
    assert errors[0] < 0.6 * errors[1]


def test_the_penalty_grows_with_the_noise() -> None:
    quiet, loud = (
        power_baseline.fit(*make(boxes=40, cubes=4, noise=noise), quadratic=(False,)) for noise in (0.01, 3.0)
    )
    assert min(loud.penalties) > max(quiet.penalties)


def test_pure_noise_is_answered_with_the_mean() -> None:
    random = np.random.default_rng(2)
    power = np.exp(random.standard_normal((240, 4, 10)))
    target = random.uniform(-1.0, 1.0, (30, 3)).repeat(8, axis=0)
    model = power_baseline.fit(power, target, np.arange(30).repeat(8))
    assert np.abs(model.predict(power)).max() < 0.5


def test_unfit_data_is_refused() -> None:
    power, target, box = make(boxes=10, cubes=2, noise=0.1)
    with pytest.raises(DataError, match="19 targets"):
        power_baseline.fit(power, target[:-1], box)
    with pytest.raises(DataError, match=r"3 boxes.*6 or more"):
        power_baseline.fit(power[:6], target[:6], box[:6])
    power[3, 0, 0] = 0.0
    with pytest.raises(DataError, match="down to 0"):
        power_baseline.fit(power, target, box)
