from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepex.data.statistics import Moments


@given(st.integers(1, 40), st.integers(1, 3), st.integers(1, 500), st.sampled_from(["u1", "f4", "f8", "i2", "?"]))
def test_parts_merge_to_the_whole(samples: int, channels: int, width: int, kind: str) -> None:
    values = (np.random.default_rng(0).random((samples, channels, width)) * 200).astype(kind)
    wide = values.astype(np.float64)
    parts = [Moments.of(part) for part in np.array_split(values, min(3, samples))]
    merged = reduce(Moments.merge, parts, Moments.none(channels))
    assert merged.count == samples * width
    assert merged.mean == pytest.approx(wide.mean(axis=(0, 2)))
    assert merged.deviation == pytest.approx(wide.std(axis=(0, 2)), abs=1e-9)
    assert np.array_equal(merged.minimum, wide.min(axis=(0, 2)))
    assert np.array_equal(merged.maximum, wide.max(axis=(0, 2)))


def test_a_small_spread_around_a_large_mean_is_not_lost() -> None:
    values = np.random.default_rng(0).normal(101_325, 500, (100, 1, 1000)).astype(np.float32)
    assert Moments.of(values).deviation[0] == pytest.approx(values.astype(np.float64).std(), rel=1e-6)


def test_numbers_survive_being_written_down() -> None:
    moments = Moments.of(np.random.default_rng(0).random((3, 2, 5)))
    again = Moments.from_plain(moments.to_plain())
    assert np.array_equal(again.mean, moments.mean)
    assert np.array_equal(again.squares, moments.squares)
