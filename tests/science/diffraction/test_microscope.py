import math
from collections.abc import Callable

import numpy as np
import pytest

from deepex.errors import ConfigError, DataError
from deepex.science.diffraction.microscope import Microscope, expose


def test_more_electrons_make_less_noise() -> None:
    pattern = np.full((100, 100), 1e-4, dtype=np.float32)
    few, many = (expose(pattern, dose, np.random.default_rng(0)).astype(float) for dose in (1e5, 1e7))
    assert few.max() == many.max() == 255
    assert few.std() / few.mean() == pytest.approx(0.5 / math.sqrt(10), rel=0.1)  # of the root of 10 electrons
    assert many.std() / many.mean() == pytest.approx(0.5 / math.sqrt(1000), rel=0.1)
    again = expose(pattern, 1e5, np.random.default_rng(0))
    assert (again == few).all()
    assert not expose(np.zeros((2, 2), dtype=np.float32), 1e5, np.random.default_rng(0)).any()


def test_a_dose_that_is_none_is_refused() -> None:
    with pytest.raises(DataError, match="dose of -1"):
        expose(np.ones((2, 2), dtype=np.float32), -1.0, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: Microscope(sampling_angstrom=0.3), "Set sampling_angstrom to 0.10"),
        (lambda: Microscope(max_semi_angle_mrad=90), "or the aperture \\(90\\)"),
        (lambda: Microscope(pixel_mrad=2.0), "detector's corner"),
        (lambda: Microscope(rows=0), "rows = 0. Allowed: more than 0"),
        (lambda: Microscope(min_thickness_angstrom=-5), "min_thickness_angstrom = -5"),
        (lambda: Microscope(min_thickness_angstrom=600), "the smaller one first"),
        (lambda: Microscope(kilovolt=math.nan), "kilovolt = nan"),
    ],
)
def test_a_microscope_that_can_not_be_is_refused_with_the_cure(build: Callable[[], Microscope], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        build()
