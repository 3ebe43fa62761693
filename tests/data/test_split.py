import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepex.data.split import split_by_name
from deepex.errors import ConfigError

SHARES = {"train": 0.7, "validation": 0.2, "test": 0.1}


@given(st.lists(st.text(), unique=True, max_size=60), st.lists(st.text(), max_size=30))
def test_no_sample_changes_sides_when_others_are_added(names: list[str], more: list[str]) -> None:
    before, after = split_by_name(names, SHARES), split_by_name([*more, *names], SHARES)
    for part, indices in before.items():
        assert set(indices + len(more)) <= set(after[part])
    assert sorted(np.concatenate(list(before.values()))) == list(range(len(names)))


def test_shares_are_met() -> None:
    parts = split_by_name([f"run{number}" for number in range(20_000)], SHARES)
    for part, share in SHARES.items():
        assert len(parts[part]) / 20_000 == pytest.approx(share, abs=0.01)


def test_what_has_one_name_stays_together() -> None:
    parts = split_by_name(["a", "b", "c", "d"] * 50, {"train": 0.5, "validation": 0.5})
    sides = [{index % 4 for index in indices} for indices in parts.values()]
    assert not sides[0] & sides[1]


def test_shares_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ConfigError, match="add up to 1"):
        split_by_name(["a"], {"train": 0.5})
