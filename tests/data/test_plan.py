import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepex.data.plan import Plan
from deepex.errors import ConfigError

sizes = st.sampled_from([1, 2, 3, 8])


@given(sizes, st.integers(1, 7), st.integers(0, 3), st.integers(56, 400), st.sampled_from(["global", "local"]))
def test_no_sample_comes_twice_in_an_epoch(size: int, batch: int, epoch: int, count: int, shuffle: str) -> None:
    ranks = [
        Plan(num_samples=count, batch=batch, seed=1, shuffle=shuffle, rank=rank, size=size)  # type: ignore[arg-type]
        for rank in range(size)
    ]
    seen = np.concatenate([plan.indices(epoch).ravel() for plan in ranks])
    assert len(set(seen)) == len(seen) == ranks[0].steps_per_epoch * batch * size
    assert count - len(seen) < batch * size + (size if shuffle == "local" else 0)
    assert seen.min() >= 0
    assert seen.max() < count


@given(st.integers(0, 5), st.integers(0, 5))
def test_global_order_does_not_depend_on_the_number_of_ranks(seed: int, epoch: int) -> None:
    orders = []
    for size in (1, 2, 3, 6):
        plans = [
            Plan(num_samples=60, batch=12 // size, seed=seed, shuffle="global", rank=rank, size=size)
            for rank in range(size)
        ]
        orders.append(np.stack([plan.indices(epoch) for plan in plans], axis=1).ravel())
    assert all(np.array_equal(order, orders[0]) for order in orders)


def test_epochs_differ_and_repeat_for_the_same_seed() -> None:
    plan = Plan(num_samples=64, batch=8, seed=3, shuffle="global")
    assert not np.array_equal(plan.indices(0), plan.indices(1))
    assert np.array_equal(plan.indices(1), Plan(num_samples=64, batch=8, seed=3, shuffle="global").indices(1))


def test_a_rank_keeps_its_share_in_local_shuffling() -> None:
    plan = Plan(num_samples=64, batch=8, seed=3, shuffle="local", rank=1, size=2)
    assert set(plan.indices(0).ravel()) == set(plan.indices(5).ravel())


@pytest.mark.parametrize(
    ("count", "batch", "size", "cure"),
    [(10, 8, 2, "data.batch=5 or less"), (3, 1, 4, "at most 3 ranks")],
)
def test_more_ranks_than_samples_are_refused_with_the_cure(count: int, batch: int, size: int, cure: str) -> None:
    with pytest.raises(ConfigError, match=cure):
        Plan(num_samples=count, batch=batch, seed=0, shuffle="global", size=size)
